"""Time zones by their names. A process that computes with Java too may say that Java's data decide."""

from __future__ import annotations

from zoneinfo import ZoneInfo

_chosen: dict[str, ZoneInfo] = {}


def zone_named(name: str) -> ZoneInfo:
    """The zone of this name. Raises what `ZoneInfo` raises where there is none."""
    return _chosen.get(name) or ZoneInfo(name)


def choose(zone: ZoneInfo) -> None:
    """Use these rules for the zone's name from now on, in this process."""
    _chosen[str(zone.key)] = zone


def is_chosen(name: str) -> bool:
    """Whether other rules than Python's were chosen for the name."""
    return name in _chosen
