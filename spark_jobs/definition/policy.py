"""Policies: who decides that a run is published."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """Who decides that a run is published."""

    ALWAYS = "always"
    WITHIN_TOLERANCE = "within_tolerance"
    ON_APPROVAL = "on_approval"
    NEVER = "never"
