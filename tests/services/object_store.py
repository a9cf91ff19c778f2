"""An S3 server of the tests' own, as a process of its own; it holds what it is given in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import s3fs
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from pyspark.sql import SparkSession

from spark_jobs.demo.ports import free_port
from spark_jobs.demo.supervised import Supervised, becomes_true

BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
FILE_IO = "org.apache.iceberg:iceberg-aws-bundle:1.11.0"
"""What Iceberg's `S3FileIO` needs."""
S3A = "org.apache.hadoop:hadoop-aws:3.4.1"
"""Hadoop's file system `s3a`."""

_START_SECONDS = 60


@contextmanager
def object_store(folder: Path) -> Iterator[tuple[str, int]]:
    """Host and port of a server with the empty bucket `lake`; it listens on the loopback interface."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environ = {**os.environ, "MOTO_DISABLE_GLOBAL_CORS": "true"}
    with (folder / "object-store.log").open("wb") as log:
        server = Supervised(command, environ=environ, log=log, folder=folder)
        try:
            at = "127.0.0.1", port
            is_made = becomes_true(lambda: _has_bucket(at), within=_START_SECONDS, every=0.2)
            assert is_made, "the object store does not answer"
            yield at
        finally:
            server.stop()


def client(host: str, port: int) -> Any:
    """Amazon's own client of the server, which tries once."""
    return boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region_name=KEYS["AWS_REGION"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def _has_bucket(at: tuple[str, int]) -> bool:
    try:
        client(*at).create_bucket(Bucket=BUCKET)
    except BotoCoreError:
        return False
    return True


@contextmanager
def environment_of(host: str, port: int) -> Iterator[None]:
    """s3fs and the SDK of Java find the server in the environment of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        patch.setenv("AWS_DEFAULT_REGION", KEYS["AWS_REGION"])
        s3fs.S3FileSystem.clear_instance_cache()  # one of another server
        yield
        s3fs.S3FileSystem.clear_instance_cache()


def file_io_of(host: str, port: int) -> dict[str, str]:
    """The properties of a catalog with its tables in the server, for Java and for PyIceberg."""
    return {
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": f"http://{host}:{port}",
        "s3.path-style-access": "true",
        "s3.access-key-id": KEYS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": KEYS["AWS_SECRET_ACCESS_KEY"],
        "s3.region": KEYS["AWS_REGION"],
        "client.region": KEYS["AWS_REGION"],
        # Between two tries; of itself 2 to 20 s.
        "s3.retry.min-wait-ms": "50",
        "s3.retry.max-wait-ms": "500",
    }


@contextmanager
def s3a_of(spark: SparkSession, host: str, port: int) -> Iterator[None]:
    """Hadoop's `s3a` finds the server."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # pyright: ignore
    names = {
        "endpoint": f"http://{host}:{port}",
        "endpoint.region": KEYS["AWS_REGION"],
        "path.style.access": "true",
        "access.key": KEYS["AWS_ACCESS_KEY_ID"],
        "secret.key": KEYS["AWS_SECRET_ACCESS_KEY"],
        "impl.disable.cache": "true",  # one of another server
    }
    for name, value in names.items():
        conf.set(f"fs.s3a.{name}", value)
    yield
    for name in names:
        conf.unset(f"fs.s3a.{name}")
