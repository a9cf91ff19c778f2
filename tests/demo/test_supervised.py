from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil


def test_what_a_service_has_started_ends_with_its_owner(tmp_path: Path) -> None:
    code = '''
import os, sys, time
from pathlib import Path
from spark_jobs.demo.supervised import Supervised
child = """
import subprocess, time
for _ in range(40):
    subprocess.Popen(['sleep', '612.5'], start_new_session=True)
print('ready', flush=True)
time.sleep(600)
"""
process = Supervised([sys.executable, "-c", child], environ=os.environ, log=sys.stdout.buffer, folder=Path.cwd())
time.sleep(600)
'''
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert owner.stdout.readline().strip() == "ready"

    def sleepers() -> list[int]:
        return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "612.5"]]

    def sleepers_become(number: int) -> bool:
        deadline = time.monotonic() + 30
        while len(sleepers()) != number and time.monotonic() < deadline:
            time.sleep(0.2)
        return len(sleepers()) == number

    assert sleepers_become(40)  # a started process has its command line a moment after Popen returns
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert sleepers_become(0)
