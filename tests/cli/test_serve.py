"""What runs until it is stopped ends on each signal in the same way."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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
