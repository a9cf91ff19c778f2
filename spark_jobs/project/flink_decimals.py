"""The digits of Flink SQL's decimals, which decide to how many places a division is rounded.

The rules are those of Flink's `LogicalTypeMerging`. Spark has the same for operators; what differs are the digits of
literals, of BIGINT (19 in Flink, 20 in Spark) and of SUM (38 in Flink). Where those matter, an operand gets a cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

_MOST = 38
_LEAST_SCALE = 6
_ROOM = 30
"""As many digits may the result of an operator have before Spark's other digits of an operand can change its scale."""
_OPERATORS = ("+", "-", "*", "/", "%", "MOD")


@dataclass(frozen=True, slots=True)
class Digits:
    """DECIMAL(precision, scale), as Flink has it. `is_alike`: whether Spark surely has the same."""

    precision: int
    scale: int
    is_alike: bool = True

    @property
    def before(self) -> int:
        """The digits before the point."""
        return self.precision - self.scale

    @property
    def within(self) -> Digits:
        """With no more than 38 digits: those before the point first, then at least six of the scale."""
        if self.precision <= _MOST:
            return self
        return replace(self, precision=_MOST, scale=max(_MOST - self.before, min(self.scale, _LEAST_SCALE)))


def is_operator(name: str, operands: Sequence[Digits | None]) -> bool:
    """Whether a call is an operator between two operands that computes digits of its own."""
    return name in _OPERATORS and len(operands) == 2


def must_be_alike(name: str, operands: Sequence[Digits]) -> bool:
    """Whether the digits of an operator's operands decide more than those before the point of its result."""
    return name == "/" or _computed(name, *operands).precision > _ROOM


def digits_of_result(name: str, operands: Sequence[Digits | None]) -> Digits | None:
    """The digits of what a call gives; None where they are not known."""
    known = [one for one in operands if one is not None]
    if not known or len(known) < len(operands):
        return None
    if is_operator(name, known):
        return _computed(name, *known).within
    if name.partition(" ")[0] == "SUM":
        return Digits(_MOST, known[0].scale)
    if name.partition(" ")[0] == "AVG":
        return Digits(_MOST, max(_LEAST_SCALE, known[0].scale))
    if name in ("FLOOR", "CEIL"):
        return Digits(known[0].precision, 0, is_alike=False)
    if name in ("GREATEST", "LEAST"):
        return common_digits(known)
    return known[0] if name in ("+", "-", "ABS") else None


def rounded(one: Digits, places: int) -> Digits:
    """The digits of ROUND to so many places behind the point."""
    if places >= one.scale:
        return one
    if places < 0:
        return Digits(min(_MOST, one.before + 1), 0, is_alike=False)
    return Digits(one.before + 1 + places, places, is_alike=False)


def common_digits(found: Sequence[Digits | None]) -> Digits | None:
    """The digits of a value that is one of these, as in CASE; None where they are not known."""
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    scale = max(one.scale for one in known)
    precision = max(one.before for one in known) + scale
    is_alike = known[0].is_alike and all(one == known[0] for one in known)
    return Digits(precision, scale, is_alike) if precision <= _MOST else None


def _computed(name: str, one: Digits, other: Digits) -> Digits:
    is_alike = one.is_alike and other.is_alike
    scale = max(one.scale, other.scale)
    if name == "/":
        scale = max(_LEAST_SCALE, one.scale + other.precision + 1)
        return Digits(one.before + other.scale + scale, scale, is_alike)
    if name == "*":
        return Digits(one.precision + other.precision + 1, one.scale + other.scale, is_alike)
    if name in ("%", "MOD"):
        return Digits(min(one.before, other.before) + scale, scale, is_alike)
    return Digits(max(one.before, other.before) + scale + 1, scale, is_alike)
