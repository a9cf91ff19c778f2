"""Compares emitted, faithful and complete values, window by window.

`Comparer.compare` makes up to three passes. The first classifies all windows from the log alone (`verdicts.classify`).
The windows that it leaves open, which are few, are classified again: by what the live job recorded, where there is such
evidence, else by a cut of the log that explains all keys of a window end (`fitting`). Sessions have a pass of their own
(`sessions`). At the end each remaining difference gets its nearest explanation: a field of the definition that the rows
contradict (`other_values`), or what the values prove (`explain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.delivered import as_delivered
from spark_jobs.comparison.emitted import (
    AMBIGUOUS,
    LATE_OUTPUT,
    OFFSETS,
    ROWS,
    Emitted,
    emitted_name,
    live_of,
    read_late_output,
)
from spark_jobs.comparison.explain import explained, touched_sessions
from spark_jobs.comparison.fitting import CUTS, FIT_KEYS, KIND, LEFT_OUT, SEARCHED, fitted_cuts, fitting_columns
from spark_jobs.comparison.join_keys import WINDOW_HASH, join_columns
from spark_jobs.comparison.other_values import with_other_values
from spark_jobs.comparison.recount import (
    CERTAIN,
    CONTRADICTED,
    HELD_BACK,
    KEPT,
    RecountContext,
    checkpointed,
    ends_of,
    records_in,
    recount,
    recounted_name,
    taken_by_cut,
    taken_by_offsets,
)
from spark_jobs.comparison.reopened import with_reopened
from spark_jobs.comparison.sessions import classify_sessions
from spark_jobs.comparison.timing_band import detected_band, open_from
from spark_jobs.comparison.verdicts import (
    BASIS,
    DIFFERS,
    LABEL,
    VERDICT,
    ComparisonScope,
    EvidenceKind,
    Label,
    Verdict,
    all_same,
    classify,
    differing,
)
from spark_jobs.definition import Pipeline
from spark_jobs.engines.live_engine import subtasks_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.other_values import OtherValue
from spark_jobs.replay.rounding import rounding_bounds, rounding_name
from spark_jobs.replay.rule_book import Emission
from spark_jobs.replay.spec import complete_name
from spark_jobs.spark.cached import CachedFrames

_DIFFERENT = (Verdict.MISMATCH.value, Verdict.MISSING.value, Verdict.EXTRA.value)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `rows` has the columns of `spark_jobs.comparison.verdicts.classify`, and in addition `fit`, `fit_keys`,
    `fit_left_out` (about the fit of the window's end; null where none was tried) and `contradicted`: the number of
    records on which evidence and log disagree, outside of the band and of lags. `has_fits`: whether a fit was tried.
    `tried`: the values of fields that were tried on windows that differ.
    """

    rows: DataFrame
    scope: ComparisonScope
    band: Band
    fidelity: str
    has_fits: bool = True
    tried: tuple[OtherValue, ...] = ()


class Comparer:
    """Compares the windows of one replay in the ranges `spans`. A context manager, since it caches frames.

    `older`: in these ranges only the windows of `pairs` (keys, `window_start`, `window_end` in epoch ms, distinct).
    `uncommitted`: in the same columns the windows whose rows may be out or not (`LiveEngine.in_doubt`).
    """

    def __init__(
        self,
        replay: Replay,
        pipeline: Pipeline,
        emitted: Emitted,
        spans: Sequence[TimeRange],
        older: Sequence[TimeRange] = (),
        pairs: DataFrame | None = None,
        uncommitted: DataFrame | None = None,
    ) -> None:
        self._given = replay
        self.pipeline = pipeline
        self.emitted = emitted
        self.spans = (*older, *spans)
        self._parts = [*((span, pairs) for span in older), *((span, None) for span in spans)]
        self.live = live_of(pipeline)
        self._uncommitted = uncommitted
        self._cached = CachedFrames()

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.__dict__.get("replay", self._given) is not self._given:
            self.replay.__exit__()
        self._cached.release()

    @cached_property
    def _bounds(self) -> dict[str, str]:
        aggregates = {v: self._given.spec.aggregates[v] for v in self.emitted.values}
        return rounding_bounds(self._given.history.records, aggregates)

    @cached_property
    def replay(self) -> Replay:
        """The replay, with the bounds beside the aggregates."""
        return self._given.with_aggregates(self._bounds) if self._bounds else self._given

    @cached_property
    def band(self) -> Band:
        return detected_band(self.pipeline, self.replay.spec, self.replay.timeline, self.emitted)

    @cached_property
    def scope(self) -> ComparisonScope:
        spec, timeline = self.replay.spec, self.replay.timeline
        flushed = spec.flush and timeline.flushes
        each_batch = spec.rules.emission is Emission.EACH_BATCH
        return ComparisonScope(
            keys=spec.keys,
            values=self.emitted.values,
            open_from=MAX_TIMESTAMP if flushed or each_batch else open_from(timeline, spec, 0),
            not_final_from=MAX_TIMESTAMP if flushed else open_from(timeline, spec, spec.allowed_lateness),
            tolerance=self.live.tolerance,
            may_be_out_until=spec.rules.may_be_out_until,
            rounded=tuple(v for v in self.emitted.values if rounding_name(v) in self._bounds),
        )

    @cached_property
    def context(self) -> RecountContext:
        return RecountContext(self.replay, self.band, subtasks_of(self.pipeline, self.live) > 1)

    def compare(self) -> Comparison:
        """Classify every window of the ranges; see the module for the passes."""
        parts = (self.replay.windows(span, self.band, only) for span, only in self._parts)
        windows = reduce(DataFrame.unionByName, parts)
        none = F.lit(None)
        uncommitted = self._uncommitted
        if uncommitted is not None and self.replay.merges:
            uncommitted = touched_sessions(uncommitted, windows, self.emitted, self.scope.keys)
        first = classify(windows, self.emitted, self.scope, uncommitted).withColumns(
            {
                KIND: none.cast("string"),
                FIT_KEYS: none.cast("int"),
                LEFT_OUT: none.cast("int"),
                "contradicted": F.lit(0).cast("bigint"),
            }
        )
        first = self._cached.keep(as_delivered(first, self.pipeline, self.scope, self.spans).drop(WINDOW_HASH))
        is_open = F.col(VERDICT).isin(*_DIFFERENT) | (F.col(UNDECIDED) > 0)
        if self._has_evidence:
            is_open = is_open | (F.col(VERDICT) == Verdict.NOT_CLOSED)
        open_rows = checkpointed(first.where(is_open))
        if open_rows.isEmpty():
            return Comparison(first, self.scope, self.band, self._fidelity, has_fits=False)
        if self.replay.merges:
            if self._has_evidence or self._fidelity != "recorded":  # else nothing is in doubt
                again = classify_sessions(
                    open_rows, self.emitted, self.scope, self.context, evidence=self.live.last_offsets is not None
                )
                open_rows = checkpointed(again)
        elif self._has_evidence:
            open_rows = checkpointed(self._by_evidence(open_rows))
        open_rows = with_reopened(open_rows, first, self.scope, self.context, self.spans)
        if not self.replay.merges:
            open_rows = checkpointed(self._by_fit(open_rows))
        tried = tuple(self.replay.spec.rules.other_values(self.replay.spec, is_whole=self.replay.has_own_timeline))
        open_rows = with_other_values(open_rows, first, self.scope, self.context, tried)
        open_rows = checkpointed(explained(open_rows, first, self.scope, self.context, self.spans))
        rows = first.where(~is_open).unionByName(open_rows)
        return Comparison(rows, self.scope, self.band, self._fidelity, not self.replay.merges, tried)

    @property
    def _fidelity(self) -> str:
        if self._has_evidence:
            return "recorded"
        is_known = self.pipeline.records_what_it_read and not self.band.wider
        return "recorded" if is_known else "log_order"

    @property
    def _has_evidence(self) -> bool:
        """The late output lists records, not windows: it is evidence only where each record has exactly one window."""
        if self.live.last_offsets is not None:
            return True
        spec = self.replay.spec
        has_one_window = not spec.has_sessions and spec.aligned_windows.assigns_one
        return self.live.late_output is not None and has_one_window

    def _by_evidence(self, rows: DataFrame) -> DataFrame:
        """Classify windows that differ, or have undecided records, by what the live job recorded."""
        has_row = F.col(ROWS) > 0
        # The log has not closed this window but the job emitted it: its timer ran on after the last record.
        not_closed = F.col(VERDICT) == Verdict.NOT_CLOSED
        by_offsets = self.live.last_offsets is not None
        has_evidence = F.when(has_row, F.col(OFFSETS).isNotNull() | F.lit(not by_offsets)).otherwise(~not_closed)
        open_question = (F.col(UNDECIDED) > 0) | F.col(VERDICT).isin(*_DIFFERENT) | not_closed
        in_doubt = ~F.col(AMBIGUOUS) & has_evidence & open_question
        doubt = checkpointed(rows.where(in_doubt))
        if doubt.isEmpty():
            return rows
        ends = ends_of(self.context, doubt)
        records = records_in(self.context, doubt, ends, OFFSETS)
        if by_offsets:
            taken = taken_by_offsets()
        else:
            records = records.join(read_late_output(rows.sparkSession, self.pipeline), [PARTITION, OFFSET], "left")
            taken = F.col(LATE_OUTPUT).isNull()
        recorded = recount(self.context, records, taken, self.scope.computed)
        joined = self._with_recounted(rows, recorded, in_doubt)
        agrees = all_same(joined, self.scope, emitted_name, recounted_name)
        complete = all_same(joined, self.scope, emitted_name, complete_name)
        against = F.when(not_closed, 0).otherwise(F.coalesce(F.col(CONTRADICTED), F.lit(0)))
        verdict = (
            F.when(not_closed & ~agrees, Verdict.NOT_CLOSED)
            .when(not_closed, F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
            .when(
                ~has_row, F.when((F.col(CERTAIN) > 0) | (F.col(KEPT) > 0), Verdict.MISSING).otherwise(Verdict.ALL_LATE)
            )
            .when(against > 0, Verdict.MISMATCH)
            .when(F.col(KEPT).isNull(), Verdict.EXTRA)
            .when(~agrees, Verdict.MISMATCH)
            .otherwise(F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
        )
        label = F.when(has_row & (against > 0) & ~not_closed, Label.EVIDENCE_CONTRADICTS_LOG)
        names = differing(joined, self.scope, emitted_name, recounted_name)
        differs = F.when(has_row & ~agrees & ~not_closed, names)
        return self._with_evidence_verdicts(joined, verdict, label, differs, EvidenceKind.RECORDED, against)

    def _by_fit(self, rows: DataFrame) -> DataFrame:
        """Classify windows that differ and have undecided records by one cut for all keys of their window end."""
        without_evidence = F.col(BASIS).isin(EvidenceKind.LOG.value, EvidenceKind.LOG_UNDECIDED.value)
        came_anew = F.col(LABEL).eqNullSafe(Label.EMITTED_AGAIN_AFTER_RESTART)
        open_question = without_evidence & (F.col(UNDECIDED) > 0) & ~F.col(AMBIGUOUS) & ~came_anew
        differs = open_question & F.col(VERDICT).isin(*_DIFFERENT)
        ends_in_doubt = checkpointed(rows.where(differs).select(F.col(END).alias("rw_end")).distinct())
        if ends_in_doubt.isEmpty():
            return rows
        doubt = rows.where(open_question & (F.col(VERDICT) != Verdict.NOT_CLOSED))
        doubt = checkpointed(doubt.join(F.broadcast(ends_in_doubt), F.col(END) == F.col("rw_end"), "left_semi"))
        types = {f.name: f.dataType for f in rows.schema}
        columns = fitting_columns(self.context, self.scope.values, types)
        if not columns:
            verdict = F.when(differs, Verdict.UNDECIDED).otherwise(F.col(VERDICT))
            label = F.when(differs, Label.NOTHING_TO_FIT).otherwise(F.col(LABEL))
            return rows.withColumns({VERDICT: verdict, LABEL: label})
        ends = ends_of(self.context, doubt)
        cuts = checkpointed(fitted_cuts(self.context, doubt, ends, columns))
        with_cuts = doubt.drop(KIND, FIT_KEYS, LEFT_OUT).join(F.broadcast(cuts), END)
        records = records_in(self.context, with_cuts, ends, CUTS)
        recounted = recount(self.context, records, taken_by_cut(CUTS), self.scope.computed)
        fits = cuts.select(F.col(END).alias("rw_end"), *(F.col(c).alias(f"rw_{c}") for c in _FIT_COLUMNS))
        joined = self._with_recounted(rows, recounted, open_question)
        joined = joined.join(F.broadcast(fits), F.col(END) == F.col("rw_end"), "left")
        return self._with_fit_verdicts(joined, differs)

    def _with_fit_verdicts(self, joined: DataFrame, differs: Column) -> DataFrame:
        has_row = F.col(ROWS) > 0
        agrees = F.when(has_row, all_same(joined, self.scope, emitted_name, recounted_name)).otherwise(
            F.coalesce(F.col(KEPT), F.lit(0)) == 0
        )
        tried = differs & F.col(f"rw_{KIND}").isNotNull()
        found = tried & (F.col(f"rw_{KIND}") != "") & agrees
        searched, by_checkpoint = F.col(f"rw_{SEARCHED}"), found & F.coalesce(HELD_BACK, F.lit(False))
        verdict = (
            F.when(by_checkpoint | (tried & ~searched), Verdict.UNDECIDED)
            .when(found, Verdict.TIMING)
            .otherwise(F.col(VERDICT))
        )
        label = (
            F.when(by_checkpoint, Label.HELD_BACK)
            .when(found, F.col(f"rw_{KIND}"))
            .when(tried & ~searched, Label.TOO_MANY_CUTS)
            .when(tried, Label.NO_ADMISSIBLE_CUT)
            .otherwise(F.col(LABEL))
        )
        basis = F.when(found & ~by_checkpoint, EvidenceKind.FIT).otherwise(F.col(BASIS))
        fits = {c: F.col(f"rw_{c}") for c in (KIND, FIT_KEYS, LEFT_OUT)}
        with_verdicts = joined.withColumns({VERDICT: verdict, LABEL: label, BASIS: basis, **fits})
        return with_verdicts.drop("rw_end", *(f"rw_{c}" for c in _FIT_COLUMNS), *self._recount_columns)

    def _with_recounted(self, rows: DataFrame, recounted: DataFrame, chosen: Column) -> DataFrame:
        """`rows` joined with their recounted columns; `rw_was_recounted` is true where `chosen` is."""
        marked = rows.withColumn("rw_was_recounted", F.coalesce(chosen, F.lit(False)))
        return marked.join(checkpointed(recounted), join_columns(self.scope.keys), "left")

    def _with_evidence_verdicts(
        self, joined: DataFrame, verdict: Column, label: Column, differs: Column, basis: EvidenceKind, against: Column
    ) -> DataFrame:
        """Set the verdict columns of the recounted rows. Their faithful values are then the recounted ones."""

        def where_recounted(new: Column, old: str) -> Column:
            return F.when(F.col("rw_was_recounted"), new).otherwise(F.col(old))

        values = {v: where_recounted(F.when(F.col(KEPT) > 0, F.col(recounted_name(v))), v) for v in self.scope.computed}
        with_verdicts = joined.withColumns(
            {
                VERDICT: where_recounted(verdict, VERDICT),
                LABEL: where_recounted(label, LABEL),
                DIFFERS: where_recounted(differs, DIFFERS),
                BASIS: where_recounted(F.lit(basis.value), BASIS),
                "contradicted": where_recounted(against, "contradicted"),
                **values,
            }
        )
        return with_verdicts.drop(*self._recount_columns)

    @property
    def _recount_columns(self) -> tuple[str, ...]:
        numbers = ("rw_was_recounted", KEPT, CERTAIN, CONTRADICTED, HELD_BACK)
        return (*numbers, *(recounted_name(v) for v in self.scope.computed))


_FIT_COLUMNS = (KIND, CUTS, FIT_KEYS, LEFT_OUT, SEARCHED)
