"""Wait for a service to reach a state."""

from __future__ import annotations

import operator
from collections.abc import Callable

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed


def becomes_true(condition: Callable[[], bool], *, within: float, every: float) -> bool:
    """Call `condition` until it is true, each `every` seconds; False when it is not after `within` seconds.

    The condition is called at least once. What it raises is raised.
    """
    attempts = Retrying(
        retry=retry_if_result(operator.not_),
        stop=stop_after_delay(within),
        wait=wait_fixed(every),
        retry_error_callback=lambda _: False,
    )
    return attempts(condition)
