"""What is due: the windows in which the readers of the live job's output have another value than the published one.

What readers have is what the live job emitted, as the comparison found it (`<table>__verdicts`), or what was delivered
last (`<table>__corrections`). What they should have is the published revision. Only windows that the live job does not
touch any more are due, and each revision once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import ROWS, emitted_name, live_of
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.verdicts import LABEL, VERDICT, ComparisonScope, Label, Verdict, all_same, is_none_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.corrections import CorrectedValue, Corrections, destination_name
from spark_jobs.definition.deployments import Deployment, current_deployment
from spark_jobs.definition.live import Live
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.corrections import EXISTED, CorrectionTable, new_name, old_name
from spark_jobs.lakehouse.delivery import CorrectionAction, DeliveryKind
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.lakehouse.verdicts import VerdictTable, final_before
from spark_jobs.replay.columns import HISTORY_GONE, PANE, STATE
from spark_jobs.replay.spec import complete_name

"""Kinds of windows that lie where the records are."""
_BY_RULE = (Verdict.MISMATCH, Verdict.MISSING, Verdict.EXTRA)
"""The live job broke its own rules: only then is the faithful value another one than it should have emitted."""
_BY_TRUTH = (*_BY_RULE, Verdict.LATE_ARRIVALS, Verdict.ALL_LATE, Verdict.TIMING, Verdict.UNDECIDED)


@dataclass(frozen=True)
class CorrectionScope:
    """What a pipeline's corrections are about: the definition's sections, its tables and the compared aggregates."""

    spark: SparkSession
    pipeline: Pipeline
    live: Live
    corrections: Corrections
    tables: Tables
    values: tuple[str, ...]
    ledger: CorrectionTable = field(repr=False)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.pipeline.keys)

    @property
    def destination(self) -> str:
        return destination_name(self.corrections.destination(self.live))

    @property
    def identity(self) -> tuple[str, ...]:
        return self.ledger.identity

    @cached_property
    def comparison(self) -> ComparisonScope:
        """The compared values and their tolerances."""
        return ComparisonScope(self.keys, self.values, 0, 0, self.live.tolerance)


def sections_of(pipeline: Pipeline) -> tuple[Live, Corrections]:
    """The sections `live:` (of the deployment that runs now) and `corrections:`.

    Raises DefinitionError where the definition has no `corrections:`.
    """
    if pipeline.corrections is None or pipeline.live is None:
        raise DefinitionError(
            "the definition does not say where corrections go",
            pipeline.file or pipeline.name,
            "Add a section `corrections:`, beside `live:`.",
        )
    return live_of(current_deployment(pipeline)), pipeline.corrections


def scope_of(spark: SparkSession, pipeline: Pipeline) -> CorrectionScope:
    """The scope of a pipeline's corrections.

    Raises DefinitionError where the definition has no section `corrections:` or nothing was compared yet.
    """
    live, corrections = sections_of(pipeline)
    pipeline = current_deployment(pipeline)
    tables = Tables.of(pipeline)
    there: set[str] = set()
    if spark.catalog.tableExists(tables.verdicts):
        there = set(spark.table(tables.verdicts).columns)
    values = tuple(a for a in pipeline.aggregates if emitted_name(a) in there)
    ledger = CorrectionTable(spark, tables.corrections, tuple(pipeline.keys))
    return CorrectionScope(spark, pipeline, live, corrections, tables, values, ledger)


def due(scope: CorrectionScope, published: DataFrame | None = None, head: int | None = None) -> DataFrame | None:
    """The rows to deliver, in the columns of the table of corrections but those of the delivery: `value`, `action`,
    `existed`, `revision`, `cause`, `run_id`, keys, window and values.

    `published`: the windows that count as published (default: those that are). `head`: the snapshot of the table of
    corrections that they are decided on.

    None: nothing is, because nothing was compared or published yet.
    """
    spark, tables = scope.spark, scope.tables
    final = final_before(spark, tables.comparisons, scope.live.name if isinstance(scope.live, Deployment) else None)
    if final is None or not scope.values or not spark.catalog.tableExists(tables.windows):
        return None
    known = _known_to_readers(scope, head)
    wanted = _wanted(scope, published if published is not None else current_revisions(scope))
    keys = join_columns(scope.keys)
    candidates = with_join_keys(known, scope.keys).select(*keys, *(c for c in known.columns if c not in scope.identity))
    joined = with_join_keys(wanted, scope.keys).join(candidates, keys)
    have, want, seen = F.col("rw_have"), F.col("rw_want"), F.col("rw_seen")

    def same(one: Callable[[str], str], other: Callable[[str], str]) -> Column:
        return all_same(joined, scope.comparison, one, other)

    is_same = F.when(want & seen, same(_want, _seen) & ~F.col("rw_unlike")).otherwise(want == seen)
    chosen = joined.where(F.col("window_end") < F.timestamp_millis(F.lit(final))).where(
        ~is_same & (F.col("revision") > F.col("rw_revision"))
    )
    if scope.corrections.value is CorrectedValue.FAITHFUL:
        # Evidence may show that the live job was right where the log alone says otherwise.
        agree = F.when(want & F.col("rw_ruled"), same(_want, _rule)).otherwise(want == F.col("rw_ruled"))
        chosen = chosen.where(F.col("rw_ruled").isNull() | agree)
    return chosen.select(
        *(f"`{c}`" for c in scope.identity),
        *(F.when(have, F.col(f"`{_have(v)}`")).alias(old_name(v)) for v in scope.values),
        *(F.when(want, F.col(f"`{_want(v)}`")).alias(new_name(v)) for v in scope.values),
        F.lit(scope.corrections.value.value).alias("value"),
        F.when(want, CorrectionAction.UPSERT.value).otherwise(CorrectionAction.DELETE.value).alias("action"),
        have.alias(EXISTED),
        "revision",
        "cause",
        "run_id",
    )


def current_revisions(scope: CorrectionScope) -> DataFrame:
    """The current revision of each published window; retracted windows have one too."""
    return scope.spark.table(f"{scope.tables.windows}.branch_{REVISIONS}").where("valid_to IS NULL")


def _have(value: str) -> str:
    return f"rw_have_{value}"


def _want(value: str) -> str:
    return f"rw_want_{value}"


def _seen(value: str) -> str:
    return f"rw_seen_{value}"


def _rule(value: str) -> str:
    return f"rw_rule_{value}"


def _wanted(scope: CorrectionScope, published: DataFrame) -> DataFrame:
    """Each published window's revision, whether there is a value to deliver (`rw_want`), and that value."""
    if "pane" in published.columns:  # of several firings the last one counts
        latest = Window.partitionBy(*(f"`{c}`" for c in scope.identity)).orderBy(F.desc_nulls_last(PANE))
        if scope.pipeline.panes == "all":
            published = published.withColumn("rw_place", F.row_number().over(latest)).where("rw_place = 1")
    columns: Sequence[str] = scope.values
    if scope.corrections.value is CorrectedValue.COMPLETE:
        columns = [complete_name(v) for v in scope.values]
    there = set(published.columns)
    known = [F.col(f"`{c}`").isNotNull() for c in columns if c in there]
    has_value = F.lit(False)
    for one in known:
        has_value = has_value | one
    if scope.corrections.value is CorrectedValue.FAITHFUL:
        want, unknown = F.coalesce(F.col(STATE) == "closed", F.lit(False)), F.lit(False)
    else:
        want = F.coalesce(F.col(STATE).isin("closed", "all_late", "not_emitted"), F.lit(False)) & has_value
        # A run of mode `faithful` knows no complete value; the pieces of a session have none.
        may_lack = F.lit(not scope.pipeline.window.follows_records)
        unknown = may_lack & F.coalesce(F.col(STATE) == "closed", F.lit(False)) & ~has_value
    # What is kept without its records has no state of a window: readers keep what they have.
    unknown = unknown | F.col(STATE).eqNullSafe(HISTORY_GONE)
    kinds = {f.name: f.dataType for f in published.schema}
    cells = [
        (F.col(f"`{c}`") if c in there else F.lit(None).cast(kinds[v])).alias(_want(v))
        for v, c in zip(scope.values, columns, strict=True)
    ]
    return published.where(~unknown).select(
        *(f"`{c}`" for c in scope.identity), *cells, want.alias("rw_want"), "revision", "cause", "run_id"
    )


def _known_to_readers(scope: CorrectionScope, head: int | None) -> DataFrame:
    """What readers have (`rw_have`), and the value that a correction has to differ from (`rw_seen`).

    The two differ where corrections were reverted: the corrected value does not come again. `rw_unlike`: the live job
    emitted a value that the replay's type cannot hold, so that it differs from each. `rw_rule`: the faithful
    value of the comparison, `rw_ruled`: whether there is one; null where a delivery is the last that is known.
    """
    emitted = _emitted(scope)
    if not scope.ledger.exists():
        return emitted
    latest = scope.ledger.latest(scope.destination, head)
    reverted = F.col("kind") == DeliveryKind.REVERT.value
    kinds = {f.name: f.dataType for f in emitted.schema}
    has = F.col("action") == CorrectionAction.UPSERT.value
    there = set(latest.columns)

    def cell(name: str) -> Column:
        return F.col(f"`{name}`") if name in there else F.lit(None)

    delivered = latest.select(
        *(f"`{c}`" for c in scope.identity),
        has.alias("rw_have"),
        F.when(reverted, F.col(EXISTED)).otherwise(has).alias("rw_seen"),
        F.col("revision").alias("rw_revision"),
        F.lit(None).cast("boolean").alias("rw_ruled"),
        F.lit(False).alias("rw_unlike"),
        *(cell(new_name(v)).cast(kinds[_have(v)]).alias(_have(v)) for v in scope.values),
        *(
            F.when(reverted, cell(old_name(v))).otherwise(cell(new_name(v))).cast(kinds[_seen(v)]).alias(_seen(v))
            for v in scope.values
        ),
        *(F.lit(None).cast(kinds[_rule(v)]).alias(_rule(v)) for v in scope.values),
    )
    keys = join_columns(scope.keys)
    others = with_join_keys(emitted, scope.keys).join(
        with_join_keys(delivered, scope.keys).select(*keys), keys, "left_anti"
    )
    return delivered.unionByName(others.select(*(f"`{c}`" for c in delivered.columns)))


def _emitted(scope: CorrectionScope) -> DataFrame:
    """What the live job emitted for the windows that it did not emit as it should have."""
    verdicts = VerdictTable(scope.spark, scope.tables.verdicts, scope.keys).current()
    assert verdicts is not None
    wanted = _BY_RULE if scope.corrections.value is CorrectedValue.FAITHFUL else _BY_TRUTH
    # Of a window with several rows nothing says which one to correct.
    found = verdicts.where(F.col(VERDICT).isin(*(v.value for v in wanted))).where(
        F.col(LABEL).isNull() | (F.col(LABEL) != Label.SEVERAL_ROWS.value)
    )
    kinds = {f.name: f.dataType for f in scope.spark.table(scope.tables.windows).schema}
    has = F.coalesce(F.col(ROWS) > 0, F.lit(False))
    ruled = ~F.col(VERDICT).isin(Verdict.EXTRA.value, Verdict.ALL_LATE.value)
    # The columns for what readers have are of the replay's types, which have no place for such a value.
    unlike = reduce(or_, (is_none_of(F.col(f"`{emitted_name(v)}`"), kinds[v]) for v in scope.values))
    return found.select(
        *(F.col(f"`{k}`").cast(kinds[k]).alias(k) for k in scope.identity),
        has.alias("rw_have"),
        has.alias("rw_seen"),
        F.lit(0).alias("rw_revision"),
        ruled.alias("rw_ruled"),
        unlike.alias("rw_unlike"),
        *(F.col(f"`{emitted_name(v)}`").try_cast(kinds[v]).alias(_have(v)) for v in scope.values),
        *(F.col(f"`{emitted_name(v)}`").try_cast(kinds[v]).alias(_seen(v)) for v in scope.values),
        *(F.col(f"`{v}`").cast(kinds[v]).alias(_rule(v)) for v in scope.values),
    )


def make_ledger(scope: CorrectionScope) -> None:
    """Make the table of corrections. Raises CatalogError where that is not possible."""
    scope.ledger.prepare_table(scope.spark.table(scope.tables.windows).schema, scope.values)
