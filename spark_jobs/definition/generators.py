"""The fields of `watermark` that are parameters of each generator."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.eventtime.suppliers import GeneratorKind


@dataclass(frozen=True, slots=True)
class Parameters:
    """The fields of `watermark` that one generator needs, and those it may have."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every parameter the generator takes."""
        return self.needed + self.optional


PARAMETERS: dict[GeneratorKind, Parameters] = {
    GeneratorKind.ASCENDING: Parameters(),
    GeneratorKind.BOUNDED: Parameters(("bound",)),
    GeneratorKind.LAG: Parameters(("lag",)),
    GeneratorKind.AVERAGE_OF_LAST: Parameters(("last", "lag")),
    GeneratorKind.TIME_LAG: Parameters(("lag",)),
    GeneratorKind.PUNCTUATED: Parameters(("marker", "lag")),
    GeneratorKind.ADVANCE_AFTER_WAIT: Parameters(("bound", "wait")),
    GeneratorKind.INTERLEAVED: Parameters(("stream", "bound"), ("streams",)),
    GeneratorKind.CUSTOM: Parameters(("class",), ("parameters",)),
    GeneratorKind.NONE: Parameters(),
}
EXAMPLES = {
    "bound": "30 min",
    "lag": "30 min",
    "last": "10",
    "marker": "is_marker = 1",
    "wait": "1 min",
    "stream": "device",
    "class": "my_module:MyGenerator",
}
"""The value that a message shows for a missing parameter."""
