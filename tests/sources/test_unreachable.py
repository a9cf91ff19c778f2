"""Brokers that nobody can reach are named at once, with the setting to correct."""

from __future__ import annotations

import socket
import time

import pytest

from spark_jobs.errors import SourceError
from spark_jobs.sources.kafka.admin import refuse_unreachable


def test_an_unreachable_broker_is_named_within_ten_seconds() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(SourceError) as refused:
        refuse_unreachable(f"127.0.0.1:{port}, no-such-host.invalid:9092", "orders")
    assert time.monotonic() - began < 10
    assert f"127.0.0.1:{port}" in refused.value.what and "no-such-host.invalid:9092" in refused.value.what
    assert "`history.servers`" in refused.value.hint


def test_one_broker_that_answers_is_enough_and_odd_addresses_are_left_to_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refuse_unreachable(f"127.0.0.1:1,PLAINTEXT://127.0.0.1:{port}", "orders")
    refuse_unreachable("kafka", "orders")
