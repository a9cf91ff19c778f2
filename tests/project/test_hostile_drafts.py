"""No place of the draft of `rewindow init` lets a text out of its line, and each place is known here."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from ruamel.yaml import YAML

from spark_jobs.formatting import visible
from spark_jobs.project import writing
from spark_jobs.project.yaml_text import quoted, scalar

TEMPLATE = Path(writing.__file__).parent / "templates" / "pipeline.yaml.j2"
QUOTED = {"scalar", "mapping", "comment", "servers"}
WORDS_OF_OURS = {
    "engine", "address.kind", "sample.file_format", "field", "sample.value_format", "sample.framing", "sample.envelope",
    "event_time.unit", "event_time.bounds.earliest", "event_time.bounds.latest", "lateness",
    "asked.behind_watermark", "asked.behind_window", "asked.at_end",
}  # fmt: skip
"""Places beside a comment that hold words, numbers and times of Rewindow's own."""
IN_COMMENTS = {
    "read_from", "name", "sample.tombstones", "sample.deletes", "read", "nulls", "key", "event_time.bounds.before",
    "event_time.bounds.after", "field",
}  # fmt: skip
HOSTILE = [
    "a\nlive: {x: y}", "a: b", "a # b", "a}, x: {y", "\u2028x: 1", "\x85x: 1", "${HOME}",
    "$${HOME}", "\U0001f600", "\x00",
    "'", '"', "\\", "*a", "&a", "!a", "- a", "? a", "\u202egnp", "null", "~", "1", "1e3", "0x10", "yes", "", " ", " a ",
    "<script>", "'; DROP TABLE x; --", "%", "@", "`a`", "\ufeff", "\r\n", "\x1b[2J", "x" * (1 << 20),
    "---", "{{ 7 * 7 }}",
]  # fmt: skip


def place(node: nodes.Node) -> str:
    """How an expression of a template is written: a name and its attributes."""
    if isinstance(node, nodes.Getattr):
        return f"{place(node.node)}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else type(node).__name__


def test_each_place_of_the_draft_quotes_what_it_holds_or_is_known_to_hold_our_words() -> None:
    tree = Environment().parse(TEMPLATE.read_text())
    found = [
        (part, output)
        for output in tree.find_all(nodes.Output)
        for part in output.nodes
        if not isinstance(part, nodes.TemplateData)
    ]
    assert len(found) > 40
    unknown = []
    for part, output in found:
        before = "".join(one.data for one in output.nodes if isinstance(one, nodes.TemplateData))
        if isinstance(part, nodes.Filter) and part.name in QUOTED:
            continue
        if isinstance(part, nodes.Filter) and part.name == "lines" and place(part.node) in WORDS_OF_OURS:
            continue
        if (
            isinstance(part, nodes.Mul)
            or place(part) in WORDS_OF_OURS
            or (place(part) in IN_COMMENTS and "#" in before)
        ):
            continue
        unknown.append((part.lineno, place(part)))
    assert unknown == []


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:20])
def test_a_text_is_read_back_as_it_was_and_stays_on_its_line(text: str) -> None:
    yaml = YAML(typ="safe")
    for written in (scalar(text), quoted(text)):
        assert len(written.splitlines()) <= 1 and written.isprintable()
        as_text = {"a": text.replace("${", "$${")}
        assert yaml.load(f"a: {written}\n") == as_text
        assert yaml.load(f"{{a: {written}}}") == as_text
    if len(text) < 1000:
        assert list(yaml.load(f"{{{scalar(text)}: 1}}")) == [text.replace("${", "$${")]
    for line in writing._comment(text, 2).splitlines():
        assert line.startswith("  #") and visible(line) == line
    assert len(writing._on_one_line(text).splitlines()) <= 1
