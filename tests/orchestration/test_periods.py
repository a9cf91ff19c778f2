"""Airflow hears of each day or hour that a run has changed, and who may approve."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import DefinitionError
from spark_jobs.orchestration.dags import asset_of, asset_of_periods, asset_of_verdicts, backfill_dag
from spark_jobs.orchestration.operators import refuse_other_approver, tell_periods
from tests.runs.small_runs import definition_text


@pytest.fixture
def defined(tmp_path):
    path = tmp_path / "orders.yaml"
    text = definition_text("orders", tmp_path / "data") + "publish: {policy: on_approval, approvers: [amal, noor]}\n"
    path.write_text(text)
    return load_pipeline(path)


def test_the_asset_of_periods_gets_a_partition_for_each_and_the_tables_own_gets_none(defined) -> None:
    """An event with a partition key would start no DAG that follows the table without partitions."""
    outlets, events = [asset_of(defined), asset_of_periods(defined)], OutletEventAccessors()
    periods = ["2026-12-01T00:00:00", "2026-12-02T00:00:00"]
    tell_periods(outlets, {"outlet_events": events}, periods)
    assert events[outlets[1]].partition_keys == set(periods)
    assert events[outlets[0]].partition_keys == set()


def test_an_asset_that_a_dag_names_is_the_one_that_is_told(defined) -> None:
    """Of two assets with one name and other URIs Airflow takes one for inactive, and fails the tasks that name it."""
    for own in (asset_of(defined), asset_of_periods(defined), asset_of_verdicts(defined)):
        named = Asset(own.name)
        assert (named.name, named.uri) == (own.name, own.uri)


def test_only_the_approvers_of_the_definition_may_publish(defined) -> None:
    assert defined.publish.approvers == ("amal", "noor") and defined.publish.policy is Policy.ON_APPROVAL
    approve: Any = backfill_dag("backfill__orders", defined).get_task("approve")
    assert [user["id"] for user in approve.assigned_users] == ["amal", "noor"]
    refuse_other_approver(defined, "amal", "publish")
    refuse_other_approver(defined, "eve", "discard")
    with pytest.raises(DefinitionError, match="eve may not publish a run of orders"):
        refuse_other_approver(defined, "eve", "publish")
