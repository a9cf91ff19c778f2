"""The files under `deploy/` name variables, folders and versions that exist. No container is started."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from spark_jobs import __version__
from spark_jobs.settings import Variable, settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
(AIRFLOW,) = re.findall(r"^apache-airflow==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)


def read(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load(DEPLOY / name)


def environments() -> Mapping[str, Mapping[str, str]]:
    """The variables that each file gives to Airflow."""
    return {
        "compose.yaml": read("compose.yaml")["x-airflow"]["environment"],
        "helm-values.yaml": {one["name"]: one["value"] for one in read("helm-values.yaml")["env"]},
    }


@pytest.mark.parametrize("name", ["compose.yaml", "helm-values.yaml"])
def test_rewindow_accepts_the_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {key: value for key, value in environments()[name].items() if key.startswith("REWINDOW_")}
    assert given.keys() <= set(Variable)
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    assert settings().run_store.startswith("s3://lake/")


def test_the_image_has_the_versions_of_the_package_and_copies_what_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(rf"^FROM apache/airflow:{re.escape(AIRFLOW)}-python3\.11$", text, re.MULTILINE)
    assert f"--tag rewindow:{__version__}" in text
    copied = [name for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for name in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    let_in = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert let_in == set(copied)
    extras = re.search(r'"\.\[([\w,]+)\]"', text)
    assert extras and set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()


def test_compose_waits_for_services_that_exist_and_pins_its_images() -> None:
    compose = read("compose.yaml")
    services = compose["services"]
    assert compose["x-airflow"]["image"] == f"rewindow:{__version__}"
    for service in services.values():
        assert re.fullmatch(r"[\w/]+:(\d|RELEASE)[\w.-]*", service["image"])
        assert set(service.get("depends_on", ())) <= services.keys()
        volumes = [volume.partition(":")[0] for volume in service.get("volumes", ())]
        assert {volume for volume in volumes if not volume.startswith("$")} <= compose["volumes"].keys()
    assert read("helm-values.yaml")["airflowVersion"] == AIRFLOW


def test_the_image_installs_nothing_without_its_hash() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    installs = re.findall(r"pip install ([^\n\\]*)", text)
    assert len(installs) == 2
    for options in installs:
        assert "--no-deps" in options
        assert "--require-hashes --requirement requirements.txt" in options or "--no-build-isolation" in options
    assert "constraint" not in text and "--hash" not in text.replace("--require-hashes", "")


def test_each_who_comes_logs_in_and_no_file_has_the_secret_that_signs_logins() -> None:
    given = environments()["compose.yaml"]
    assert not any(name.endswith("ALL_ADMINS") for name in given)
    roles = dict(one.split(":") for one in given["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(","))
    assert set(roles.values()) <= {"viewer", "user", "op", "admin"} and list(roles.values()).count("admin") == 1
    assert re.fullmatch(r"\$\{\w+:\?[\w ,]+\}", given["AIRFLOW__API_AUTH__JWT_SECRET"])


def test_the_broker_of_compose_advertises_addresses_that_its_clients_reach() -> None:
    """A client goes on at the advertised address: the service's name in a container, a published port outside."""
    broker = read("compose.yaml")["services"]["broker"]
    given = broker["environment"]

    def addresses(name: str) -> dict[str, str]:
        return dict(one.split("://") for one in given[name].split(","))

    listens, advertised = addresses("KAFKA_LISTENERS"), addresses("KAFKA_ADVERTISED_LISTENERS")
    assert advertised.keys() == listens.keys() - {given["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    assert all(address.partition(":")[2] == listens[name].partition(":")[2] for name, address in advertised.items())
    assert advertised[given["KAFKA_INTER_BROKER_LISTENER_NAME"]] == "broker:9092"
    published = {port.rpartition(":")[2] for port in broker["ports"]}
    outside = {a.partition(":")[2] for a in advertised.values() if a.startswith("localhost:")}
    assert outside == published and len(outside) == 1
    assert set(given["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].replace(":PLAINTEXT", "").split(",")) == set(listens)
    assert given["KAFKA_LOG_DIRS"] == broker["volumes"][0].partition(":")[2]
