"""Addresses for people show where something is, and no secret, however the address is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.addresses import public_address, without_passwords

SECRET = "S3CR3T"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("jdbc:postgresql://host/db?password=S3CR3T", "jdbc:postgresql://host/db"),
        ("jdbc:postgresql://ann:S3CR3T@db:5432/x", "jdbc:postgresql://db:5432/x"),
        ("https://ann:S3CR3T@c", "https://c"),
        ("https://S3CR3T@c/v1", "https://c/v1"),
        ("jdbc:sqlserver://h:1433;user=ann;password=S3CR3T", "jdbc:sqlserver://h:1433"),
        ("jdbc:oracle:thin:scott/S3CR3T@db", "jdbc:oracle:thin:db"),
        ("jdbc:oracle:thin:scott/S3CR3T@//db:1521/svc", "jdbc:oracle:thin:..."),
        ("scott/S3CR3T@db", "..."),
        ("jdbc:mysql://(host=h,user=u,password=S3CR3T)/db", "jdbc:mysql://..."),
        ("jdbc:mysql://h1,u:S3CR3T@h2/db", "jdbc:mysql://h2/db"),
        ("s3a://KEY:S3CR3T@bucket/lake", "s3a://bucket/lake"),
        ("jdbc:postgresql://ann:S3C?R3T@db/x", "jdbc:postgresql://..."),
        ("https://ann:S3C/R3T@c/x", "https://c/x"),
        ("https://c/x?a=b@S3CR3T", "https://..."),
        ("https://c/x#S3CR3T", "https://c/x"),
        ("jdbc:sqlite:/home/ann/.rewindow/catalog.db", "jdbc:sqlite:/home/ann/.rewindow/catalog.db"),
        ("thrift://m:9083,thrift://n:9083", "thrift://m:9083"),
        ("https://[::1]:8181/c", "https://[::1]:8181/c"),
        ("/data/warehouse", "/data/warehouse"),
        ("file:///data/warehouse", "file:///data/warehouse"),
        ("no address", "..."),
    ],
)
def test_an_address_without_its_secrets(address: str, shown: str) -> None:
    assert public_address(address) == shown


schemes = st.sampled_from(("https:", "jdbc:postgresql:", "jdbc:mysql:", "thrift:", "jdbc:oracle:thin:", "s3a:", ""))
passwords = st.text("ab/?;#@:&=%,()[] ", max_size=6).map(lambda odd: f"{odd[:3]}{SECRET}{odd[3:]}")
hosts = st.sampled_from(("db", "db:5432", "a.b.example.com:1", "[::1]:9"))


@given(schemes, st.sampled_from(("//", "")), passwords, hosts, st.sampled_from(("", "/x", "/x?y=1", ";a=b")))
def test_no_password_is_shown_whatever_is_in_it(scheme, slashes, password, host, rest) -> None:
    address = f"{scheme}{slashes}ann:{password}@{host}{rest}"
    assert SECRET not in public_address(address)
    if not re.search(r"\s", password):
        assert SECRET not in without_passwords(f"No suitable driver found for {address}") or not (slashes and scheme)


@given(st.sampled_from(("password", "db_password", "PWD", "token", "client_secret")), st.sampled_from("=:"))
def test_a_named_password_in_a_message_is_not_shown(name, sign) -> None:
    assert SECRET not in without_passwords(f"cannot log in with {name}{sign}{SECRET}, user=ann")


def test_a_message_keeps_what_is_no_secret() -> None:
    text = "file:/data/a{1,2}/*.json is gone at s3a://lake/x, and hdfs://n:9000/y; host db:5432"
    assert without_passwords(text) == text
