"""Addresses for people: where something is, without user, password and the parameters that an address can have."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"(?:jdbc:)?[A-Za-z][A-Za-z0-9+.-]*:(?:thin:|oci:)?")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::\d+)?(?=[/,:]|$)")
_PATH = re.compile(r"(?:/[A-Za-z0-9._/-]*)?")
_FILE = re.compile(r"/[^@;?#]*")
_IN_TEXT = re.compile(r"(?:jdbc:[a-z0-9]+:|[A-Za-z][A-Za-z0-9+.-]*:/)[^\s'\"<>]+")
_NAMED = re.compile(r"(?i)\b(\w*(?:password|passwd|pwd|secret|token|credential)\w*\s*[=:]\s*)[^\s,;&)]+")
_MAY_HOLD_MORE = re.compile(r"@|[?;]\S")
_CUT = re.compile(r"[?;#\s]")


def public_address(address: str) -> str:
    """Scheme, host and path of an address, or the path of a local file; of what is neither, the scheme alone.

    User, password and parameters are left out. Where a password could be taken for the host,
    there is none: `jdbc:postgresql://ann:pa?ss@db/x` is `jdbc:postgresql://...`.
    """
    scheme = _SCHEME.match(address)
    if scheme is None:
        return address if _FILE.fullmatch(address) or _HOST.fullmatch(address) else "..."
    rest = address[scheme.end() :]
    cut = _CUT.search(rest)
    head, tail = (rest, "") if cut is None else (rest[: cut.start()], rest[cut.start() :])
    slashes = "//" if head.startswith("//") else ""
    if "@" in tail:
        return f"{scheme[0]}{slashes}..."
    *user, place = head.removeprefix(slashes).rsplit("@", 1)
    if not user and (not slashes or place.startswith("/")) and _FILE.fullmatch(place):
        return f"{scheme[0]}{slashes}{place}"
    host = _HOST.match(place)
    path = _PATH.match(place, host.end()) if host else None
    is_place = host is not None and (slashes or user or ":" in host[0])
    shown = f"{host[0]}{path[0]}" if host and path and is_place else "..."
    return f"{scheme[0]}{slashes}{shown}"


def without_passwords(text: str) -> str:
    """A message of a driver or a server, with each address in it as `public_address`, and without named passwords."""

    def shown(found: re.Match[str]) -> str:
        return public_address(found[0]) if _MAY_HOLD_MORE.search(found[0]) else found[0]

    return _NAMED.sub(r"\1...", _IN_TEXT.sub(shown, text))
