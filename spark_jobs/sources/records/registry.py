"""The schemas of a registry's subject, asked over HTTP by Confluent's REST protocol.

All versions of the subject are fetched once, when a history is opened; what a plan pins is read again without the
registry. Credentials come from the environment and are in no message.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from spark_jobs.definition.fields import Refusal
from spark_jobs.definition.payload import Registry, RegistryAccess, refuse_address, sends_in_clear
from spark_jobs.errors import EnvironmentSetupError, SourceError

_SECONDS = 8.0
"""How long the registry may take to answer at all."""
_LATER_SECONDS = 60.0
"""How long it may take for everything, once it has answered."""
_MOST_BYTES = 16 << 20
_MOST_VERSIONS = 10_000
_AT_ONCE = 8
_MOST_REFERENCES = 100
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_NO_SUBJECT, _NO_VERSION = 40401, 40402


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject: its schema's id, kind (AVRO, JSON or PROTOBUF) and text.

    `references`: the schemas that it refers to, each behind those that it needs itself.
    """

    number: int
    id: int
    kind: str
    text: str
    references: tuple[str, ...] = ()
    is_deleted: bool = False


def versions_of(registry: Registry, environ: Mapping[str, str] = os.environ) -> list[Version]:
    """All versions of the subject, the oldest first, those too that were deleted: records have their ids.

    Raises:
        SourceError: The registry does not answer within 10 s, refuses the access, or has no such subject.
        EnvironmentSetupError: The variable of a credential is not set.
    """
    _check_address(registry)
    client = _Client(registry, _authorization(registry.auth, environ))
    subject = quote(registry.subject, safe="")
    there = client.numbers(f"/subjects/{subject}/versions", _SECONDS)
    everything = {*there, *client.numbers(f"/subjects/{subject}/versions?deleted=true", _LATER_SECONDS)}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda number: client.version(number, number not in there), sorted(everything)))


def _check_address(registry: Registry) -> None:
    """Raise SourceError for an address that the definition's own check has not seen, since a variable held it."""
    try:
        refuse_address(registry.url)
    except Refusal as refusal:
        raise SourceError("the registry's address " + refusal.what, "value.registry.url", refusal.hint) from None
    if registry.auth is not None and sends_in_clear(registry.url):
        hint = "Write an address that begins with https:// under value.registry.url."
        raise SourceError("the registry would get its credentials in clear", "value.registry.url", hint)


def _authorization(auth: RegistryAccess | None, environ: Mapping[str, str]) -> dict[str, str]:
    variable = None if auth is None else auth.basic or auth.bearer
    if auth is None or variable is None:
        return {}
    secret = environ.get(variable, "").strip()
    if not secret:
        raise EnvironmentSetupError(
            f"environment variable {variable} is not set, and the schema registry's credentials are taken from it",
            "value.registry.auth",
            "Set it where this command runs, or correct `auth` in the definition.",
        )
    if auth.basic is None:
        return {"Authorization": f"Bearer {secret}"}
    return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}


class _NoRedirects(HTTPRedirectHandler):
    """Follows none: the credentials would go along."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class _Client:
    registry: Registry
    headers: dict[str, str] = field(repr=False)

    def numbers(self, path: str, seconds: float) -> list[int]:
        """The numbers of versions."""
        found = self.get(path, seconds)
        if not isinstance(found, list) or not all(_is_number(number) for number in found):
            raise self.no_registry()
        if len(found) > _MOST_VERSIONS:
            raise self._error(
                f"subject `{self.registry.subject}` has {len(found):,} versions: {_MOST_VERSIONS:,} are the most",
                "Delete versions in the registry that no record has, or correct value.registry.subject.",
            )
        return found

    def version(self, number: int, is_deleted: bool) -> Version:
        """One version of the subject, with what it refers to."""
        answer = self._get_version(self.registry.subject, number)
        found = self._referenced(answer, set())
        return Version(number, answer["id"], answer.get("schemaType") or "AVRO", answer["schema"], found, is_deleted)

    def _get_version(self, subject: str, number: int) -> Any:
        answer = self.get(f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true", _LATER_SECONDS)
        if not _is_version(answer):
            raise self.no_registry()
        return answer

    def _referenced(self, answer: dict[str, Any], seen: set[tuple[str, int]]) -> tuple[str, ...]:
        """The schemas that a version refers to, each behind those that it needs itself."""
        found: list[str] = []
        for one in answer.get("references") or []:
            at = one["subject"], one["version"]
            if at in seen:
                continue
            seen.add(at)
            if len(seen) > _MOST_REFERENCES:
                what = f"a schema of `{self.registry.subject}` refers to more than {_MOST_REFERENCES} others"
                raise self._error(what, "Correct the references in the registry.")
            below = self._get_version(*at)
            found += [*self._referenced(below, seen), below["schema"]]
        return tuple(found)

    def get(self, path: str, seconds: float) -> Any:
        """The JSON that the registry answers. Raises SourceError with one sentence for whatever goes wrong."""
        request = Request(self.registry.url + path, headers={"Accept": _ACCEPT, **self.headers})
        until = time.monotonic() + seconds
        try:
            with build_opener(_NoRedirects()).open(request, timeout=seconds / 2) as answer:
                return json.loads(_read(answer, until))
        except HTTPError as error:
            with error:
                raise self._refused(error.code, _message(error, until)) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise self._error(
                f"the schema registry does not answer: {str(reason) or type(reason).__name__}",
                "Check that it runs, and the address under value.registry.url.",
            ) from None
        except (ValueError, RecursionError):
            raise self.no_registry() from None

    def _refused(self, status: int, answer: tuple[int | None, str]) -> SourceError:
        code, message = answer
        subject = self.registry.subject
        if status in (401, 403):
            auth = self.registry.auth
            named = None if auth is None else auth.basic or auth.bearer
            hint = "Write under value.registry.auth which environment variable holds them: `auth: {basic: NAME}`."
            if named is not None:
                hint = f"Correct what the environment variable {named} holds, or its rights on the subject {subject}."
            what = "asks for credentials" if named is None else "refuses the credentials"
            return self._error(f"the schema registry {what} ({status})", hint)
        if code == _NO_SUBJECT:
            hint = "Correct value.registry.subject; the subject of a topic's values is usually named `<topic>-value`."
            return self._error(f"the schema registry has no subject `{subject}`", hint)
        if code == _NO_VERSION:
            return self._error(f"subject `{subject}` has lost a version: {message}", "Try again.")
        if status == 404:
            return self.no_registry()
        return self._error(f"the schema registry answers {status}: {message}", "Look into its log, and try again.")

    def no_registry(self) -> SourceError:
        """What answers at this address speaks another protocol."""
        return self._error("what answers is no schema registry", "Correct the address under value.registry.url.")

    def _error(self, what: str, hint: str) -> SourceError:
        return SourceError(what, self.registry.url, hint)


def _is_number(value: object) -> bool:
    """Whether the value can be a version's number, or the id of a schema, which has four bytes in a record."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_version(answer: object) -> bool:
    """Whether a registry's answer is a version with a schema."""
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        return False
    if not all(_is_number(answer.get(name)) for name in ("id", "version")):
        return False
    references = answer.get("references") or []
    return isinstance(answer.get("schemaType") or "", str) and isinstance(references, list) and all(
        isinstance(one, dict) and isinstance(one.get("subject"), str) and _is_number(one.get("version"))
        for one in references
    )  # fmt: skip


def _read(answer: IO[bytes], until: float) -> bytes:
    """The body. Raises OSError where it takes too long, and ValueError where it is too large."""
    parts, size = [], 0
    while part := answer.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError("too large")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return b"".join(parts)


def _message(error: HTTPError, until: float) -> tuple[int | None, str]:
    """The registry's own code and message of an error, as far as it has them; at most 200 letters."""
    try:
        answer = json.loads(_read(error, until))
        return answer.get("error_code"), str(answer.get("message") or error.reason)[:200]
    except (OSError, HTTPException, ValueError, AttributeError, RecursionError):
        return None, str(error.reason)[:200]
