"""The configuration of Kafka's client: the definition's options, and secrets from the environment.

Secrets are in the client's configuration only. They are never part of a definition, a plan, a table, a message or a
process's arguments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.errors import EnvironmentSetupError

_CONNECTION = "AIRFLOW_CONN_"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LIBRDKAFKA = {"sasl.mechanisms": "sasl.mechanism"}
_NOT_FROM_CONNECTIONS = ("group.id", "enable.auto.commit", "auto.offset.reset", "isolation.level", "bootstrap.servers")


def client_config(topic: TopicAccess, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Kafka's client configuration by Kafka's own names. It has the secrets, so it must not be printed.

    Raises EnvironmentSetupError where the variable of a secret or a connection is not set.
    """
    config = {"bootstrap.servers": topic.servers}
    if topic.connection is not None:
        config |= _from_connection(topic.connection, environ)
    config |= {name: _as_text(value) for name, value in topic.options.items()}
    for name, variable in topic.secrets.items():
        if not environ.get(variable):
            raise EnvironmentSetupError(
                f"environment variable {variable} is not set, and `{name}` is taken from it",
                f"topic {topic.topic}",
                "Set it where this command runs, or correct `secrets` in the definition's history.",
            )
        config[name] = environ[variable]
    return config


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_connection(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The configuration in an Airflow connection, JSON or URI, in the environment as Airflow itself reads it.

    Its extra holds Kafka's own names (the `sasl.username` and `sasl.password` of other clients are understood). Login
    and password become the JAAS configuration of SASL's PLAIN or SCRAM.
    """
    variable = _CONNECTION + name.upper()
    text = environ.get(variable, "").strip()
    if not text:
        raise EnvironmentSetupError(
            f"connection `{name}` is not in the environment",
            variable,
            "Airflow hands it to the task; elsewhere set the variable to its JSON or URI.",
        )
    try:
        login, password, extra = _parsed(text)
    except ValueError:
        # The text holds the password: neither it nor the parser's own words are shown.
        raise EnvironmentSetupError(f"connection `{name}` cannot be read", variable, "Write JSON or a URI.") from None
    config = {
        _LIBRDKAFKA.get(key, key): _as_text(value) for key, value in extra.items() if key not in _NOT_FROM_CONNECTIONS
    }
    login, password = config.pop("sasl.username", login), config.pop("sasl.password", password)
    if login and "sasl.jaas.config" not in config:
        mechanism = config.setdefault("sasl.mechanism", "PLAIN")
        config.setdefault("security.protocol", "SASL_SSL")
        module = _SCRAM if mechanism.startswith("SCRAM") else _PLAIN
        config["sasl.jaas.config"] = f"{module} required username={_quoted(login)} password={_quoted(password or '')};"
    return config


def _parsed(text: str) -> tuple[str | None, str | None, Mapping[str, object]]:
    """Login, password and extra of a connection. Raises ValueError where it is neither JSON nor a URI."""
    if text.startswith("{"):
        content = json.loads(text)
        extra = content.get("extra") or {}
        return content.get("login"), content.get("password"), json.loads(extra) if isinstance(extra, str) else extra
    parts = urlsplit(text)
    query = dict(parse_qsl(parts.query))
    extra = json.loads(query["__extra__"]) if "__extra__" in query else query
    return unquote(parts.username or "") or None, unquote(parts.password or "") or None, extra


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
