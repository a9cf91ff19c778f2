"""Emitted, faithful and complete compared, window by window: the log first, then evidence, then fits.

`compare_windows` is the whole of it; the modules beside it are its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import (
    AGAIN,
    AMBIGUOUS,
    LATE_OUTPUT,
    OFFSETS,
    ROWS,
    Emitted,
    emitted_name,
    live_of,
    read_late_output,
)
from spark_jobs.comparison.explain import explained
from spark_jobs.comparison.fitting import CUTS, FIT_KEYS, KIND, LEFT_OUT, SEARCHED, fitted_cuts, fitting_columns
from spark_jobs.comparison.join_keys import join_columns
from spark_jobs.comparison.recount import (
    CERTAIN,
    CONTRADICTED,
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
from spark_jobs.comparison.sessions import judge_sessions
from spark_jobs.comparison.timing_band import detected_band, open_from, source_subtasks
from spark_jobs.comparison.verdicts import (
    BASIS,
    DIFFERS,
    LABEL,
    VERDICT,
    Comparing,
    EvidenceKind,
    Verdict,
    all_same,
    differing,
    judge,
)
from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import CalendarDayWindows, TumblingWindows
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.spec import complete_name
from spark_jobs.spark.cached import CachedFrames

_DIFFERENT = (Verdict.DRIFT.value, Verdict.MISSING.value, Verdict.UNEXPECTED.value)


@dataclass(frozen=True)
class Comparison:
    """The verdicts (`rows`, see `spark_jobs.comparison.verdicts.judge`), and what they rest on.

    Rows have further `fit`, `fit_keys`, `fit_left_out` (of the window's end; null where none was tried) and
    `contradicted`: records on which evidence and log disagree outside of band and lag.
    """

    rows: DataFrame
    comparing: Comparing
    band: Band
    fidelity: str


class Comparer:
    """Compares the windows of one replay; use it as a context manager, it holds cached tables."""

    def __init__(self, replay: Replay, pipeline: Pipeline, emitted: Emitted, spans: Sequence[TimeRange]) -> None:
        self.replay = replay
        self.pipeline = pipeline
        self.emitted = emitted
        self.spans = tuple(spans)
        self.live = live_of(pipeline)
        self._held = CachedFrames()

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()

    @cached_property
    def band(self) -> Band:
        return detected_band(self.pipeline, self.replay.spec, self.replay.timeline, self.emitted)

    @cached_property
    def comparing(self) -> Comparing:
        spec, timeline = self.replay.spec, self.replay.timeline
        flushed = spec.flush and timeline.flushes
        return Comparing(
            keys=spec.keys,
            values=self.emitted.values,
            open_from=MAX_TIMESTAMP if flushed else open_from(timeline, 0),
            not_final_from=MAX_TIMESTAMP if flushed else open_from(timeline, spec.allowed_lateness),
            tolerance=self.live.tolerance,
        )

    @cached_property
    def context(self) -> RecountContext:
        return RecountContext(self.replay, self.band, source_subtasks(self.pipeline) > 1)

    def compare(self) -> Comparison:
        """Judge every window of the spans. What the log settles is touched once; the rest, few, is looked at again."""
        windows = reduce(DataFrame.unionByName, (self.replay.windows(span, self.band) for span in self.spans))
        none = F.lit(None)
        first = judge(windows, self.emitted, self.comparing).withColumns(
            {
                KIND: none.cast("string"),
                FIT_KEYS: none.cast("int"),
                LEFT_OUT: none.cast("int"),
                "contradicted": F.lit(0).cast("bigint"),
            }
        )
        first = self._held.keep(first)
        is_open = F.col(VERDICT).isin(*_DIFFERENT) | (F.col(UNDECIDED) > 0)
        if self._has_evidence:
            is_open = is_open | (F.col(VERDICT) == Verdict.NOT_CLOSED)
        unsettled = checkpointed(first.where(is_open))
        if not unsettled.isEmpty():
            if self.replay.merges:
                unsettled = checkpointed(
                    judge_sessions(
                        unsettled,
                        self.emitted,
                        self.comparing,
                        self.context,
                        evidence=self.live.last_offsets is not None,
                    )
                )
            else:
                if self._has_evidence:
                    unsettled = checkpointed(self._by_evidence(unsettled))
                unsettled = checkpointed(self._by_fit(unsettled))
            unsettled = _after_restarts(unsettled)
            unsettled = checkpointed(explained(unsettled, first, self.comparing, self.context, self.spans))
        return Comparison(first.where(~is_open).unionByName(unsettled), self.comparing, self.band, self._fidelity)

    @property
    def _fidelity(self) -> str:
        return "recorded" if self._has_evidence else "log_order"

    @property
    def _has_evidence(self) -> bool:
        """The late output tells of a record, not of a window: it is evidence where each record has one window."""
        if self.live.last_offsets is not None:
            return True
        has_one_window = isinstance(self.replay.spec.windows, TumblingWindows | CalendarDayWindows)
        return self.live.late_output is not None and has_one_window

    def _by_evidence(self, rows: DataFrame) -> DataFrame:
        """Windows that differ or have undecided records, judged by what the live job recorded."""
        has_row = F.col(ROWS) > 0
        # A row of a window that the log has not closed yet: the job's timer ran on after the last record.
        not_closed = F.col(VERDICT) == Verdict.NOT_CLOSED
        by_offsets = self.live.last_offsets is not None
        told = F.when(has_row, F.col(OFFSETS).isNotNull() | F.lit(not by_offsets)).otherwise(~not_closed)
        open_question = (F.col(UNDECIDED) > 0) | F.col(VERDICT).isin(*_DIFFERENT) | not_closed
        in_doubt = ~F.col(AMBIGUOUS) & told & open_question
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
        recorded = recount(self.context, records, taken, self.comparing.values)
        joined = self._with_recounted(rows, recorded, in_doubt)
        agrees = all_same(joined, self.comparing, emitted_name, recounted_name)
        complete = all_same(joined, self.comparing, emitted_name, complete_name)
        against = F.when(not_closed, 0).otherwise(F.coalesce(F.col(CONTRADICTED), F.lit(0)))
        verdict = (
            F.when(not_closed & ~agrees, Verdict.NOT_CLOSED)
            .when(not_closed, F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
            .when(
                ~has_row, F.when((F.col(CERTAIN) > 0) | (F.col(KEPT) > 0), Verdict.MISSING).otherwise(Verdict.ALL_LATE)
            )
            .when(against > 0, Verdict.DRIFT)
            .when(F.col(KEPT).isNull(), Verdict.UNEXPECTED)
            .when(~agrees, Verdict.DRIFT)
            .otherwise(F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
        )
        label = F.when(has_row & (against > 0) & ~not_closed, "evidence_contradicts_log")
        names = differing(joined, self.comparing, emitted_name, recounted_name)
        differs = F.when(has_row & ~agrees & ~not_closed, names)
        return self._settled(joined, verdict, label, differs, EvidenceKind.RECORDED, against)

    def _by_fit(self, rows: DataFrame) -> DataFrame:
        """Windows that differ and have undecided records, judged by one cut for all keys of their end."""
        without_evidence = F.col(BASIS).isin(EvidenceKind.LOG.value, EvidenceKind.LOG_UNDECIDED.value)
        open_question = without_evidence & (F.col(UNDECIDED) > 0) & ~F.col(AMBIGUOUS)
        differs = open_question & F.col(VERDICT).isin(*_DIFFERENT)
        ends_in_doubt = checkpointed(rows.where(differs).select(F.col(END).alias("rw_end")).distinct())
        if ends_in_doubt.isEmpty():
            return rows
        doubt = rows.where(open_question & (F.col(VERDICT) != Verdict.NOT_CLOSED))
        doubt = checkpointed(doubt.join(F.broadcast(ends_in_doubt), F.col(END) == F.col("rw_end"), "left_semi"))
        types = {f.name: f.dataType for f in rows.schema}
        columns = fitting_columns(self.context, self.comparing.values, types)
        if not columns:
            verdict = F.when(differs, Verdict.UNDECIDED).otherwise(F.col(VERDICT))
            label = F.when(differs, "nothing_to_fit").otherwise(F.col(LABEL))
            return rows.withColumns({VERDICT: verdict, LABEL: label})
        ends = ends_of(self.context, doubt)
        cuts = checkpointed(fitted_cuts(self.context, doubt, ends, columns))
        with_cuts = doubt.drop(KIND, FIT_KEYS, LEFT_OUT).join(F.broadcast(cuts), END)
        records = records_in(self.context, with_cuts, ends, CUTS)
        recounted = recount(self.context, records, taken_by_cut(CUTS), self.comparing.values)
        told = cuts.select(F.col(END).alias("rw_end"), *(F.col(c).alias(f"rw_{c}") for c in _FIT_COLUMNS))
        joined = self._with_recounted(rows, recounted, open_question)
        joined = joined.join(F.broadcast(told), F.col(END) == F.col("rw_end"), "left")
        return self._settled_by_fit(joined, differs)

    def _settled_by_fit(self, joined: DataFrame, differs: Column) -> DataFrame:
        has_row = F.col(ROWS) > 0
        agrees = F.when(has_row, all_same(joined, self.comparing, emitted_name, recounted_name)).otherwise(
            F.coalesce(F.col(KEPT), F.lit(0)) == 0
        )
        tried = differs & F.col(f"rw_{KIND}").isNotNull()
        found = tried & (F.col(f"rw_{KIND}") != "") & agrees
        searched = F.col(f"rw_{SEARCHED}")
        verdict = F.when(found, Verdict.TIMING).when(tried & ~searched, Verdict.UNDECIDED).otherwise(F.col(VERDICT))
        label = (
            F.when(found, F.col(f"rw_{KIND}"))
            .when(tried & ~searched, "too_many_cuts")
            .when(tried, "no_admissible_cut")
            .otherwise(F.col(LABEL))
        )
        basis = F.when(found, EvidenceKind.FIT).otherwise(F.col(BASIS))
        fits = {c: F.col(f"rw_{c}") for c in (KIND, FIT_KEYS, LEFT_OUT)}
        settled = joined.withColumns({VERDICT: verdict, LABEL: label, BASIS: basis, **fits})
        return settled.drop("rw_end", *(f"rw_{c}" for c in _FIT_COLUMNS), *self._recount_columns)

    def _with_recounted(self, rows: DataFrame, recounted: DataFrame, closer: Column) -> DataFrame:
        """`rows` with the recounted columns where the closer look was taken; `rw_closer` says where."""
        marked = rows.withColumn("rw_closer", F.coalesce(closer, F.lit(False)))
        return marked.join(checkpointed(recounted), join_columns(self.comparing.keys), "left")

    def _settled(
        self, joined: DataFrame, verdict: Column, label: Column, differs: Column, basis: EvidenceKind, against: Column
    ) -> DataFrame:
        """Take the closer look's word where it was taken; the faithful values are then the recounted ones."""

        def there(new: Column, old: str) -> Column:
            return F.when(F.col("rw_closer"), new).otherwise(F.col(old))

        values = {v: there(F.when(F.col(KEPT) > 0, F.col(recounted_name(v))), v) for v in self.comparing.values}
        settled = joined.withColumns(
            {
                VERDICT: there(verdict, VERDICT),
                LABEL: there(label, LABEL),
                DIFFERS: there(differs, DIFFERS),
                BASIS: there(F.lit(basis.value), BASIS),
                "contradicted": there(against, "contradicted"),
                **values,
            }
        )
        return settled.drop(*self._recount_columns)

    @property
    def _recount_columns(self) -> tuple[str, ...]:
        return ("rw_closer", KEPT, CERTAIN, CONTRADICTED, *(recounted_name(v) for v in self.comparing.values))


def _after_restarts(rows: DataFrame) -> DataFrame:
    """A window that came out before a restart and again after it may hold the records since then only: not a drift."""
    again = F.col(AGAIN) & F.col(VERDICT).isin(*_DIFFERENT)
    return rows.withColumns(
        {
            VERDICT: F.when(again, Verdict.UNDECIDED).otherwise(F.col(VERDICT)),
            LABEL: F.when(again, "emitted_again_after_restart").otherwise(F.col(LABEL)),
        }
    )


_FIT_COLUMNS = (KIND, CUTS, FIT_KEYS, LEFT_OUT, SEARCHED)
