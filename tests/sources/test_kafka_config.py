from __future__ import annotations

import json

import pytest

from spark_jobs.definition.kafka import Topic
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.sources.kafka.admin import client_config

SECRET = 'p"w\\x'
JAAS = r'org.apache.kafka.common.security.{} required username="me" password="p\"w\\x";'
PLAIN, SCRAM = JAAS.format("plain.PlainLoginModule"), JAAS.format("scram.ScramLoginModule")


def topic(**fields) -> Topic:
    return Topic.model_validate({"servers": "k:9092", "topic": "t", **fields})


def test_secrets_are_taken_from_the_variables_that_the_definition_names() -> None:
    chosen = topic(options={"ssl.endpoint.identification.algorithm": "", "x": True}, secrets={"a.password": "KAFKA_PW"})
    expected = {"bootstrap.servers": "k:9092", "ssl.endpoint.identification.algorithm": "", "x": "true"}
    assert client_config(chosen, {"KAFKA_PW": "s"}) == {**expected, "a.password": "s"}
    with pytest.raises(EnvironmentSetupError, match="environment variable KAFKA_PW is not set"):
        client_config(chosen, {})


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (
            json.dumps({"conn_type": "kafka", "login": "me", "password": SECRET}),
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
        ),
        (
            json.dumps({"extra": json.dumps({"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "me",
                        "sasl.password": SECRET, "security.protocol": "SASL_PLAINTEXT", "group.id": "g"})}),
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM},
        ),
        (
            "kafka://me:p%22w%5Cx@host/?security.protocol=SASL_SSL",
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
        ),
    ],
)  # fmt: skip
def test_an_airflow_connection_in_the_environment_configures_the_client(connection: str, expected: dict) -> None:
    found = client_config(topic(connection="prod"), {"AIRFLOW_CONN_PROD": connection})
    assert found == {"bootstrap.servers": "k:9092", **expected}


def test_a_connection_that_cannot_be_read_is_reported_without_its_text() -> None:
    with pytest.raises(EnvironmentSetupError) as refused:
        client_config(topic(connection="prod"), {"AIRFLOW_CONN_PROD": '{"password": "pw'})
    assert "pw" not in str(refused.value) and refused.value.__suppress_context__
