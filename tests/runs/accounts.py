"""Whether a run's account says of each record what became of it."""

from __future__ import annotations

from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.work.job import RunResult


def check_account(result: RunResult) -> None:
    account = Account.read(RunStore.configured().folder(result.run_id))
    assert account is not None
    assert not account.unaccounted_records and not account.unaccounted_pairs, account
