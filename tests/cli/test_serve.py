"""What runs until it is stopped ends on each signal in the same way."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from spark_jobs.cli import serve

WAITS = """
import signal
from spark_jobs.cli.serve import stop_on_signals

stop = stop_on_signals()
try:
    print("waits", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("stopped", stop.is_set(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_what_waits_so_that_it_can_clean_up(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert (said, process.returncode) == ("stopped True\n", 0)


def test_the_next_sample_waits_while_somebody_uses_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Pages:
        def page_requests(self) -> int:
            looked.append(len(looked))
            return min(len(looked), 5)

        def get(self, _: str) -> dict:
            return {"dag_runs": []}

    now = iter(range(0, 1000, 30))
    monkeypatch.setattr("spark_jobs.cli.serve.sys.stdin", None)
    monkeypatch.setattr(
        "spark_jobs.cli.serve.time", type("Clock", (), {"monotonic": lambda: next(now), "sleep": lambda _: None})
    )
    serve._await_turn(Pages())
    assert len(looked) > 5 + 1, "it waits on after the last request"
