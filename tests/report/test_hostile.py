"""No page and no file of a run's report obeys a text of its documents."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from spark_jobs.report import build
from spark_jobs.report.assembled import report_of
from spark_jobs.report.documents import Documents
from spark_jobs.report.junit import junit_xml
from spark_jobs.runs.life.store import PAGE
from tests.report.hostile import HOSTILE, OBEYED, hostile_run


@pytest.mark.parametrize(("name", "with_all"), [("markup", True), ("address", False), ("megabyte", True)])
def test_no_text_of_a_document_is_markup_or_an_address_that_runs(
    tmp_path: Path, opened, name: str, with_all: bool
) -> None:
    run, count = hostile_run(tmp_path, HOSTILE[name], with_all=with_all)
    assert count > (200 if with_all else 60)
    build.build_report(run)
    page = opened(Path(run.address(PAGE)))
    assert page.locator("script, iframe, object, embed, img, form, base").count() == 0
    assert page.evaluate("document.querySelectorAll('[onerror], [onload], [onclick]').length") == 0
    assert page.evaluate("[...document.querySelectorAll('a')].filter(a => a.protocol === 'javascript:').length") == 0
    assert not OBEYED & set(page.locator("body").inner_text())
    assert Path(run.address(PAGE)).stat().st_size < 1 << 20


@pytest.mark.parametrize("name", HOSTILE)
def test_junit_holds_each_text_as_text_and_cuts_it(tmp_path: Path, name: str) -> None:
    run, _ = hostile_run(tmp_path, HOSTILE[name])
    xml = junit_xml(report_of(Documents.of(run)))
    assert len(xml) < 1 << 20
    texts = [text for one in ElementTree.fromstring(xml).iter() for text in (*one.attrib.values(), one.text or "")]
    assert len(texts) > 60
    assert not OBEYED & set("".join(texts))
    assert max(map(len, texts)) < 5_000
