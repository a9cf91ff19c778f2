"""A schema registry, where the schemas of a topic's records are found by their ids."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from spark_jobs.definition.environment import refuse_variable
from spark_jobs.definition.fields import Refusal, Section, Text, shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RegistryAccess(Section):
    """How a schema registry is asked: the environment variables that hold the credentials."""

    basic: Text | None = Field(
        default=None,
        description="The environment variable that holds `user:password`.",
        examples=["REGISTRY_USER_INFO"],
    )
    bearer: Text | None = Field(
        default=None, description="The environment variable that holds a token.", examples=["REGISTRY_TOKEN"]
    )

    @field_validator("basic", "bearer")
    @classmethod
    def _names_a_variable(cls, variable: str | None, info: ValidationInfo) -> str | None:
        if variable is None:
            return None
        if not _VARIABLE.fullmatch(variable):
            # The value may be the secret itself: it is not shown.
            raise Refusal("does not name an environment variable", "write the variable's name only")
        refuse_variable(variable, os.environ, is_shown=False)
        if info.data.get("basic") is not None:
            raise Refusal("is there beside `basic`", "keep one of the two")
        return variable


class Registry(Section):
    """A schema registry that speaks Confluent's REST protocol."""

    url: Text = Field(
        description="The registry's address, without credentials.",
        examples=["https://registry.example:8081", "${REGISTRY:-http://localhost:8081}"],
    )
    subject: Text = Field(
        description="The subject of the values; by Confluent's default `<topic>-value`.", examples=["flights-value"]
    )
    version: Annotated[int, Field(ge=1)] | Literal["latest"] = Field(
        default="latest",
        description="The version of the subject whose fields the records get, whichever version wrote them. A `schema` "
        "beside the registry takes its place.",
        examples=["latest", 3],
    )
    auth: RegistryAccess | None = Field(
        default=None,
        description="Credentials, by the names of environment variables. Left out: none.",
        examples=["{basic: REGISTRY_USER_INFO}"],
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        hint = "write one like `https://registry.example:8081`"
        if "${" in url:  # as written, in what the ledger keeps of a definition
            return url
        try:
            parts = urlsplit(url)
            has_place = bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            raise Refusal("is not a web address", hint) from None
        if "@" in parts.netloc:
            # It holds a password: it is not shown.
            raise Refusal("holds credentials", "write them into an environment variable, and its name under `auth`")
        if parts.scheme not in ("http", "https") or not has_place:
            raise Refusal(f"{shown(url)} is not a web address", hint)
        return url.rstrip("/")
