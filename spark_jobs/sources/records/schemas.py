"""The schemas of a registry as a plan pins them: the one that all records are read by, and those that wrote them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.definition.payload import Value
from spark_jobs.errors import SourceError
from spark_jobs.pins import PinnedSchemas
from spark_jobs.sources.records.avro_resolution import parsed_schema
from spark_jobs.sources.records.registry import Version, versions_of

_KINDS = {"avro": "AVRO", "json_schema": "JSON"}


def pin_schemas(spark: SparkSession, value: Value) -> PinnedSchemas | None:
    """The schemas that the registry has now; None where the definition names no registry.

    Raises:
        SourceError: See `registry.versions_of`; or the subject has schemas of another kind, or not the version.
        EnvironmentSetupError: The variable of a credential is not set.
    """
    registry = value.registry
    if registry is None:
        return None
    found = versions_of(registry)
    of_kind = [version for version in found if version.kind == _KINDS[value.format]]
    if not of_kind or all(version.is_deleted for version in of_kind):
        kinds = ", ".join(sorted({version.kind for version in found})) or "none"
        raise SourceError(
            f"subject `{registry.subject}` has no schema of the kind {_KINDS[value.format]} (it has {kinds})",
            registry.url,
            "Correct value.format or value.registry.subject.",
        )
    if value.format == "json_schema":
        return PinnedSchemas(registry.subject, None, "", {version.id: "" for version in of_kind})
    writers = {version.id: _resolved(spark, version, registry.subject, registry.url) for version in of_kind}
    if value.ddl is not None:
        return PinnedSchemas(registry.subject, None, value.ddl, writers)
    chosen = [version for version in of_kind if not version.is_deleted][-1]
    if registry.version != "latest":
        known = {version.number: version for version in of_kind}
        if registry.version not in known:
            numbers = ", ".join(map(str, known))
            raise SourceError(
                f"subject `{registry.subject}` has no version {registry.version}: it has {numbers}",
                registry.url,
                "Correct value.registry.version.",
            )
        chosen = known[registry.version]
    return PinnedSchemas(registry.subject, chosen.number, writers[chosen.id], writers)


def _resolved(spark: SparkSession, version: Version, subject: str, url: str) -> str:
    """A version's schema with all that it refers to."""
    try:
        return str(parsed_schema(spark, version.text, version.references).toString())
    except ValueError as error:
        what = f"version {version.number} of subject `{subject}` (schema id {version.id}) is no Avro schema: {error}"
        raise SourceError(what, url, "Delete the version in the registry, or write it anew.") from error
