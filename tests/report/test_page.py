"""The page as people meet it: in a real browser, wide and narrow, light and dark, with whatever data brings."""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.report.build import build_report
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder
from tests.report.documents import RESULT, facts, gate, outcome, request, top_window, verdicts, written
from tests.sampling import first_of

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "handler": '"><img src=x onerror=alert(1)>',
    "template": "{{ 7 * 7 }}{% raw %}",
    "right to left": "مرحبا بالعالم \u202egnp.exe",
    "emoji": "🛫👩‍👩‍👧‍👦🇯🇵",
    "control": "a\x00b\x1b[31mc\ud800d",
    "long": "W" * 10_000,
    "empty": "",
    "nothing": None,
}


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> RunFolder:
    run = written(tmp_path_factory.mktemp("runs"))
    build_report(run)
    return run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> RunFolder:
    """A run whose keys, aggregates, samples, reasons and messages hold what no page should trust."""
    window = top_window()
    windows = [
        window | {"key": {"carrier": v}, **{side: dict.fromkeys(window[side], v) for side in ("before", "after")}}
        for v in HOSTILE.values()
    ]  # fmt: skip
    data = facts()
    data["changes"] |= {"top": windows}
    results = [
        RESULT | {
            "suite": v, "data": v, "expectation": v or "e", "description": v, "severity": "critical",
            "success": False, "column": v, "observed": v,
            "threshold": {"min_value": v, str(v): [v, {"x": v}]}, "error": v,
            "samples": [{"carrier": v, str(v): v}, {"carrier": 1.5}],
        }
        for v in HOSTILE.values()
    ]  # fmt: skip
    text = "".join(filter(None, HOSTILE.values()))
    run = written(
        tmp_path_factory.mktemp("hostile"), facts=data, gate=gate(results),
        request=request(reason=text, requested_by=HOSTILE["script"], definition={"name": text}),
        outcome=outcome("gate_failed", message=text, hint=text, fidelity_reasons=[text]),
        approval={"decision": "rejected", "by": text, "at": "not a time", "comment": text},
        verdicts=verdicts(notes=[text], top=[w | {"carrier": v, "verdict": v, "label": v, "flights": v}
                                             for v in HOSTILE.values() for w in verdicts()["top"]]),
    )  # fmt: skip
    build_report(run)
    return run


def place(run: RunFolder) -> Path:
    return Path(run.address(PAGE))


def test_the_verdict_comes_first_and_says_what_happened_and_what_to_do(published, opened) -> None:
    page = opened(place(published))
    assert (
        page.title() == "Published, with 1 warning, but the live job differs: departures_hourly, reconciliation night-1"
    )
    assert [h.inner_text() for h in page.query_selector_all("main h2")] == [
        "Published, with 1 warning, but the live job differs", "What changed", "The live job", "The watermark",
        "Late records", "Expectations",
        "Advisor: how other settings would have done", "The plan, and how it went", "Words",
    ]  # fmt: skip
    copied = "e => { getSelection().selectAllChildren(e); return getSelection().toString() }"
    command = page.locator(".box code.command").first
    assert command.evaluate(copied) == command.text_content()  # lines that are broken to fit are copied whole
    box = page.locator(".box").inner_text()
    assert "published in rewindow.demo.departures_hourly: 2 windows inserted, 37 updated, 1 retracted." in box
    assert "Read 1 warning in the section Expectations." in box
    assert "rewindow revisions departures_hourly --window 2013-02-08T18:00:00Z --key carrier=UA" in box


def test_numbers_stand_where_they_belong(published, opened) -> None:
    page = opened(place(published))
    figures = dict(
        zip(
            page.locator("dl.figures dt").all_inner_texts(),
            [text.split("\n")[0] for text in page.locator("dl.figures dd").all_inner_texts()],
            strict=True,
        )
    )
    assert figures == {
        "Live job: differ for no known reason": "5", "Windows changed": "40", "Late records": "197",
        "Expectations met": "1 of 2",
    }  # fmt: skip
    windows = page.get_by_role("region", name="Windows with the largest changes").locator("tbody tr")
    first = windows.nth(0).inner_text()
    assert "2013-02-08 18:00 to 19:00" in first
    assert "40 → 46 (+6)" in first
    assert "complete 44 → 49 (+5)" in first
    assert "51,000 → 59,250 (+8,250)" in first
    assert "retracted" in windows.nth(1).inner_text() and "40 → none" in windows.nth(1).inner_text()
    partitions = page.get_by_role("region", name="Late records by partition").locator("tbody tr")
    assert partitions.nth(0).locator("td").all_inner_texts()[:4] == ["1,000", "97", "9.7 %", "12 min"]
    settings = page.get_by_role("region", name="Settings for a share of records on time").locator("tbody tr")
    assert [row.split("\t")[1:3] for row in settings.all_inner_texts()] == [
        ["30 min", "197"], ["1 h", "58"], ["4 h", "0"], ["4 h", "0"],
    ]  # fmt: skip
    sentence = "420 were behind the watermark; for 223 of these the window was still open, so they were counted."
    assert page.get_by_text(sentence).is_visible()
    idle = page.get_by_role("region", name="Longest idle times of partitions").locator("tbody tr")
    assert [row.split("\t")[0] + row.split("\t")[3] for row in idle.all_inner_texts()] == ["12 h", "01 h"]
    assert "allowed_lateness: 3 h 30 min" in settings.nth(2).inner_text()
    met = page.get_by_role("region", name="Expectations that are met").locator("tbody tr")
    assert met.is_visible() and met.inner_text().split("\t")[-2:] == ["0 of 14,656 rows are unexpected", "1 to 60"]
    page.get_by_text("1 expectation that did not apply to this run").click()
    assert page.get_by_text("keys (windows): this run has no column carrier").is_visible()
    page.get_by_text("All settings that were tried").click()
    tried = page.get_by_role("region", name="Late records by bound plus allowed lateness")
    assert tried.locator("tr.own").inner_text().split("\t") == ["30 min (now)", "420", "197", "96.7 %", "39 min"]


def test_every_picture_has_a_name_and_its_ids_are_its_own(published, opened) -> None:
    page = opened(place(published))
    pictures = page.get_by_role("img")
    names = [pictures.nth(i).evaluate("e => e.querySelector('title').textContent") for i in range(pictures.count())]
    assert names == [
        "Changed windows over time",
        "Windows of the live job that are not as they should be, over time", "Delay of the live job over time",
        "Watermark and records",
        "Late records by the time from the close of their window to their arrival",
        "Share of late records by hour of day",
        "Share of records that would have been late, by setting",
    ]  # fmt: skip
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    dangling = page.evaluate(
        "[...document.querySelectorAll('use')].filter(e => !document.querySelector(e.getAttribute('href')))"
    )
    assert dangling == []
    crosses = page.evaluate(
        """[...document.querySelectorAll('.wide #watermark-wide-title ~ g use')].map(e => e.getAttribute('href'))"""
    )
    assert len(crosses) >= 900 + 60 + 197


@pytest.mark.parametrize(
    ("width", "scheme"), first_of([(390, "dark"), (1200, "light"), (390, "light"), (1200, "dark")])
)
def test_it_is_accessible_and_never_wider_than_the_screen(published, hostile, opened, scheme, width) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    for run in (published, hostile):
        page = opened(place(run), width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        broken = axe.run(page).response["violations"]
        assert [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in broken] == []


def test_no_column_is_lost_on_a_wide_screen_and_keys_of_charts_are_small(published, opened) -> None:
    page = opened(place(published), 1400)
    lost = (
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.ariaLabel)"
    )
    assert page.evaluate(lost) == []
    widths = "[...document.querySelectorAll('.legend svg, figcaption svg')].map(e => e.getBoundingClientRect().width)"
    assert 0 < max(page.evaluate(widths)) < 40


def test_data_cannot_run_style_or_break_the_page(hostile, opened) -> None:
    page = opened(place(hostile))
    assert page.locator("script, iframe, object, embed, img, form, base").count() == 0
    assert page.evaluate("document.querySelectorAll('[onerror], [onload], [onclick]').length") == 0
    text = page.locator("main").inner_text()
    assert "<script>alert(1)</script>" in text
    assert "{{ 7 * 7 }}{% raw %}" in text
    assert "(10,000 characters)" in text
    assert "null" in page.get_by_role("region", name="Windows with the largest changes").inner_text()
    assert not {"\x00", "\x1b", "\u202e"} & set(text)
    keys = page.get_by_role("region", name="Windows with the largest changes").locator("tbody td:nth-child(2) bdi")
    assert keys.count() == len(HOSTILE) - 2  # but for the null and the empty one


def test_a_keyboard_reaches_the_skip_link_the_parts_and_the_tables(published, opened) -> None:
    page = opened(place(published))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.tagName"))
    assert {"Windows with the largest changes", "Late records by partition", "SUMMARY"} <= seen


def test_wide_tables_are_turned_and_every_word_that_is_linked_is_explained(tmp_path, opened) -> None:
    """No column is cut at 1,400 px, and the word list has what the page refers to."""
    names = [f"measure_{i}" for i in range(14)]
    data = facts()
    top = top_window()
    data["changes"] |= {
        "aggregates": names,
        "top": [top | {side: top[side] | dict.fromkeys(names, 123_456.5) for side in ("before", "after")}],
        "columns": [{"name": "flights", "windows": 30, "total": -7.0, "least": -9.0, "most": 2.0}],
    }
    wide = RESULT | {
        "success": False,
        "severity": "warning",
        "unexpected_count": 1,
        "samples": [dict.fromkeys(names, 1)],
    }
    run = written(tmp_path, facts=data, gate=gate([wide]))
    build_report(run)
    page = opened(place(run), 1400)
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    assert page.get_by_role("region", name="Windows with the largest changes").locator("dl.values dt").count() == 15
    differences = page.get_by_role("region", name="Differences by column").locator("tbody tr")
    assert differences.inner_text().split("\t") == ["flights", "30", "\N{MINUS SIGN}9", "+2", "\N{MINUS SIGN}7"]
    unexplained = (
        "[...document.querySelectorAll('a.term')].filter(e => !document.querySelector(e.getAttribute('href')))"
    )
    assert page.evaluate(unexplained) == []
    # Six columns of long numbers have no room on A4 paper either.
    names = names[:4]
    numbers = {side: top[side] | dict.fromkeys(names, 1_123_456_789.5) for side in ("before", "after")}
    data["changes"] |= {"keys": ["carrier", "origin"], "aggregates": names}
    data["changes"]["top"] = [top | numbers | {"key": {"carrier": "UA", "origin": "John F Kennedy International"}}]
    run = written(tmp_path, "long-numbers", facts=data)
    build_report(run)
    page = opened(place(run), 680)
    page.emulate_media(media="print")
    assert page.evaluate(cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    assert page.get_by_text("A different bound shifts the whole watermark by the difference").is_visible()


def test_it_prints_on_white_without_cut_tables(published, opened) -> None:
    page = opened(place(published), scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_the_page_is_one_small_file_that_names_no_other(published, hostile) -> None:
    for run in (published, hostile):
        page = run.read_text(PAGE).replace("http://www.w3.org/2000/svg", "")
        assert len(page.encode()) < 1_500_000
        assert "default-src 'none'" in page
        for address in ("http://", "https://", "//cdn", "@import", "<script", "javascript:"):
            assert address not in page.replace("http://www.w3.org/2000/svg", "").replace(
                "http://www.w3.org/1999/xlink", ""
            )


@pytest.mark.parametrize(
    ("documents", "title"),
    [
        ({"outcome": None, "gate": None, "facts": None, "changes": None}, "At work"),
        (
            {
                "plan": None, "gate": None, "facts": None, "changes": None, "chunk-0001": None, "chunk-0002": None,
                "outcome": outcome("failed", message="duplicated offsets in partition 3", hint="Set a sequence."),
            },
            "Failed",
        ),
        (dict.fromkeys(("request", "plan", "gate", "facts", "changes", "outcome")), "At work"),
        ({"facts": None, "outcome": outcome("published")}, "Published, with 1 warning, but the live job differs"),
        (
            {"facts": facts(late=None, watermark=None, advisor=None)},
            "Published, with 1 warning, but the live job differs",
        ),
    ],
)  # fmt: skip
def test_a_run_that_ended_early_has_a_report_too(tmp_path, opened, documents, title) -> None:
    run = written(tmp_path, **documents)
    build_report(run)
    page = opened(place(run))
    assert page.locator("h2").first.inner_text() == title
    assert page.locator("main h2").count() == 9
    assert run.read(REPORT)["format"] == "rewindow-report/1"
    if title == "Failed":
        assert "duplicated offsets in partition 3" in page.locator(".box").inner_text()
        assert "Set a sequence." in page.locator(".box").inner_text()
