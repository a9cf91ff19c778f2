# ruff: noqa: E501 (a message stands on one line)
"""The live section: what is read from it, and what it is refused for."""

from __future__ import annotations

import pytest

from spark_jobs.definition.deployments import deployments_of, restarts_of
from spark_jobs.definition.live import FilesEmitted, Live
from spark_jobs.definition.watermark import Watermark
from spark_jobs.eventtime.ranges import TimeRange

LIVE = """\
live:
  source: {kind: files, path: emitted/*.parquet, format: parquet}
  keys: {carrier: key}
  window: {start: ws, time_zone: America/New_York}
  values: {n: count}
  tolerance: {n: {absolute: 1}}
  last_offsets: last_offsets
  lags: [{from: "2013-01-01T10:00:00Z", to: "2013-01-01T11:00:00Z"}]
  restarts: ["2013-01-02T10:00:00Z", "2013-01-01T10:00:00Z"]
"""


@pytest.fixture
def live(definition):
    """The small definition with a live section, parts of which are replaced."""

    def text(*replacements: tuple[str, str]) -> str:
        result = LIVE
        for old, new in replacements:
            assert old in result
            result = result.replace(old, new)
        return definition() + result

    return text


def test_a_live_section_is_read(load, live, tmp_path) -> None:
    section = load(live()).live
    assert section.source.path == (str(tmp_path / "emitted/*.parquet"),)
    assert section.mode == "append"
    assert section.lags[0].start == 1357034400000
    assert section.restarts == (1357034400000, 1357120800000)
    assert section.tolerance["n"].absolute == 1
    assert section.last_offsets == "last_offsets"


def test_of_the_live_section_only_restarts_change_a_result_and_so_the_hash(load, live, definition) -> None:
    restarts = '  restarts: ["2013-01-02T10:00:00Z", "2013-01-01T10:00:00Z"]\n'
    assert load(live((restarts, ""))).definition_hash == load(definition()).definition_hash
    assert load(live()).definition_hash != load(definition()).definition_hash


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("kind: files", "kind: kafkaa"), "18: live.source.kind: `kafkaa` is not known; write `kafka`"),
        (("kind: files, ", ""), "18: live.source.kind: is missing; write one of files, table, kafka"),
        (("format: parquet", "table: x, format: parquet"), "18: live.source.table: does not belong to kind `files`; it is a field of table"),
        (("{carrier: key}", "{carier: key}"), "19: live.keys.carier: `carier` is no key of this definition; did you mean `carrier`?"),
        (("values: {n: count}", "values: {m: count}"), "21: live.values.m: `m` is no aggregate of this definition; they are n"),
        (("{start: ws, ", "{"), "20: live.window.end: is missing, and so is `start`; name the column of the window's start or of its end"),
        (("America/New_York", "New York"), "20: live.window.time_zone: `New York` is not a time zone; write `America/New_York`"),
        (("ws, time", "ws, inclusive_end: 1 ms, time"), "20: live.window.inclusive_end: there is no `end` to be inclusive; name the column of the window's end, or leave it out"),
        (("T11:00:00Z", "T09:00:00Z"), "24: live.lags[0].to: `2013-01-01T09:00:00Z` is not after `from`; give the later of the two times here"),
        (("  keys", "  mode: changelog\n  keys"), "17: live.operation: is missing: mode `changelog` needs it; write `operation: op`"),
        (("  keys", "  mode: upsert\n  operation: op\n  keys"), "20: live.operation: has no meaning in mode `upsert`; leave it out, or write `mode: changelog`"),
        (("{absolute: 1}", "{absolute: -1}"), "22: live.tolerance.n.absolute: `-1`: input should be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_a_live_section_that_cannot_be_is_refused(refusals, live, replacement, message) -> None:
    (line,) = refusals(live(replacement))
    assert line.startswith(f"p.yaml:{message}")


DEPLOYMENTS = """\
live:
  - name: first
    to: "2013-01-01T12:00:00Z"
    source: {kind: files, path: old/*.parquet, format: parquet}
    restarts: ["2013-01-01T10:00:00Z"]
    definition: {allowed_lateness: 2 h, watermark: {generator: bounded_out_of_orderness, bound: 15 min}}
  - name: second
    from: "2013-01-01T12:00:00Z"
    source: {kind: table, table: live.hourly}
    restarts: ["2013-01-01T12:00:00Z"]
"""


def test_several_deployments_are_definitions_of_their_own(load, definition, tmp_path) -> None:
    loaded = load(definition() + DEPLOYMENTS)
    first, second = deployments_of(loaded)
    assert (first.name, first.start, first.end, first.has_own_rules) == ("first", None, 1357041600000, True)
    assert (second.name, second.start, second.end, second.has_own_rules) == ("second", 1357041600000, None, False)
    live, watermark = first.pipeline.live, first.pipeline.watermark
    assert isinstance(live, Live) and isinstance(live.source, FilesEmitted)
    assert live.source.path == (str(tmp_path / "old/*.parquet"),)
    assert isinstance(watermark, Watermark)
    assert (watermark.bound, first.pipeline.allowed_lateness) == (900_000, 7_200_000)
    assert (second.pipeline.watermark, second.pipeline.allowed_lateness) == (loaded.watermark, 0)
    assert first.pipeline.source_of(("live", "source")).endswith(":20")
    assert first.pipeline.source_of(("allowed_lateness",)).endswith(":22")
    assert first.within([TimeRange(0, 1357041600001)]) == [TimeRange(0, 1357041600000)]
    assert second.clipped(TimeRange(0, 1357041600000)) is None
    # The replay repeats the restarts of those deployments that had its rules.
    assert restarts_of(loaded) == (1357041600000,)


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("    to:", "    till:"), "19: live[0].till: unknown field"),
        (("name: second", "name: first"), "23: live[1].name: `first` is given twice; choose another name"),
        (('    from: "2013-01-01T12', '    from: "2013-01-01T11'), "24: live[1].from: `2013-01-01T11:00:00Z` is before the end of `first`"),
        (('    to: "2013-01-01T12:00:00Z"\n', ""), "18: live[0].to: is missing: another deployment follows"),
        (("{kind: table, table: live.hourly}", "{kind: tabel, table: x}"), "25: live[1].source.kind: `tabel` is not known; write `table`"),
        (("bounded_out_of_orderness, bound: 15 min", "punctuated, marker: a = 1, lag: 1 s"), "22: live[0].definition.watermark.marker: `a = 1` is not the `marker` of the definition's watermark"),
        (("allowed_lateness: 2 h", "window: {type: session, gap: 1 h}"), "22: live[0].definition.window.type: sessions cannot be the windows of one deployment"),
    ],
)  # fmt: skip
def test_deployments_are_refused_with_their_lines(refusals, definition, replacement, message) -> None:
    assert replacement[0] in DEPLOYMENTS
    assert any(message in one for one in refusals(definition() + DEPLOYMENTS.replace(*replacement))), refusals(
        definition() + DEPLOYMENTS.replace(*replacement)
    )


def test_a_field_of_deployments_has_no_place_in_a_single_live_job(refusals, live) -> None:
    found = refusals(live(("  keys: {carrier: key}\n", '  keys: {carrier: key}\n  to: "2013-01-01T12:00:00Z"\n')))
    assert "live.to: has a meaning for one of several deployments only; write `live` as a list" in found[0]
