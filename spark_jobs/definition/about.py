"""Who a pipeline belongs to, and where to read more: it is shown in Airflow and changes no result."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from spark_jobs.definition.fields import Refusal, Text, shown

_LONGEST = 100
"""Airflow keeps no more characters of an owner or a tag."""


def _short(text: str) -> str:
    if len(text) > _LONGEST or not text.isprintable():
        raise Refusal(
            f"{shown(text)} is too long, or has characters that cannot be shown", f"write at most {_LONGEST} letters"
        )
    return text.strip()


def _address(text: str) -> str:
    found = urlsplit(text.strip())
    if found.scheme not in ("http", "https", "mailto") or not (found.netloc or found.path):
        raise Refusal(f"{shown(text)} is not a web address", "write one like `https://wiki.example.com/departures`")
    if re.search(r"[\s<>()]", text.strip()):
        raise Refusal(f"{shown(text)} has characters that an address cannot have", "write them as %20, %28, ...")
    return text.strip()


Label = Annotated[Text, AfterValidator(_short)]
"""A text that fits where Airflow shows it."""
Address = Annotated[Text, AfterValidator(_address)]
"""A web address, or `mailto:`."""
