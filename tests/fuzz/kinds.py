"""All kinds of input."""

from __future__ import annotations

from tests.fuzz import emitted, payloads
from tests.fuzz.answers import registry_kind
from tests.fuzz.batches import BatchKind
from tests.fuzz.search import Kind
from tests.fuzz.texts import text_kinds


def kinds_without_spark() -> list[Kind]:
    """Those that are read in this process alone."""
    return [*text_kinds(), registry_kind()]


def kinds_on_spark() -> list[BatchKind]:
    """Those of which one Spark job reads thousands."""
    return [*payloads.kinds(), *emitted.kinds()]
