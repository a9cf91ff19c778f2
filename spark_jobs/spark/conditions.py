"""Many conditions as one, in a tree that is as deep as the logarithm of their number.

Spark goes through an expression by recursion. A chain of hundreds of conditions, one for each field of a wide schema,
is too deep for Java's stack.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of the conditions holds; false where there are none."""
    return _balanced(list(conditions), operator.or_, F.lit(False))


def all_of(conditions: Iterable[Column]) -> Column:
    """Whether all conditions hold; true where there are none."""
    return _balanced(list(conditions), operator.and_, F.lit(True))


def _balanced(parts: list[Column], join: Callable[[Column, Column], Column], empty: Column) -> Column:
    if len(parts) < 2:
        return parts[0] if parts else empty
    middle = len(parts) // 2
    return join(_balanced(parts[:middle], join, empty), _balanced(parts[middle:], join, empty))
