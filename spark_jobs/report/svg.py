"""A chart's SVG, made fit to stand in a page: small, named for screen readers, with ids of its own."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

_SVG = "http://www.w3.org/2000/svg"
ET.register_namespace("", _SVG)
_DROPPED = ("role", "class", "pointer-events", "stroke-miterlimit", "version")
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_TRANSLATE = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")


def inlined(svg: str, name: str, title: str, description: str) -> str:
    """`svg` for a page. `name` begins all its ids; `title` and `description` are its text alternative.

    It scales with its box, its text takes the page's font, and marks that repeat are written once.
    """
    root = ET.fromstring(svg)
    _tidy(root)
    _share_marks(root, name)
    _name_ids(root, name)
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for tag, text in (("desc", description), ("title", title)):
        child = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{name}-{tag}"})
        child.text = text
        root.insert(0, child)
    return ET.tostring(root, encoding="unicode")


def _name_ids(root: ET.Element, name: str) -> None:
    """Ids in the order in which they stand: the renderer numbers them on from one drawing to the next."""
    given = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    own = {old: old if old.startswith(f"{name}-") else f"{name}-{i}" for i, old in enumerate(given)}
    for element in root.iter():
        if "id" in element.attrib:
            element.set("id", own[element.attrib["id"]])
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, _REFERENCE.sub(lambda found: f"url(#{own.get(found[1], found[1])})", value))


def _tidy(parent: ET.Element) -> None:
    for child in list(parent):
        is_nothing = child.get("display") == "none" or child.get("d") in ("", "M0,0h0v0h0Z")
        is_paper = child.tag == f"{{{_SVG}}}rect" and child.get("fill") == "transparent"
        bare = child.get("class") == "background" and not child.get("fill") and not child.get("stroke")
        if is_nothing or is_paper or bare:
            parent.remove(child)
            continue
        _tidy(child)
        if child.tag == f"{{{_SVG}}}g" and not len(child):
            parent.remove(child)
    for key in [k for k in parent.attrib if k.startswith("aria-") or k in _DROPPED]:
        del parent.attrib[key]
    if parent.get("opacity") == "1":
        del parent.attrib["opacity"]
    parent.attrib.pop("font-family", None)
    for key in ("d", "transform"):
        if key in parent.attrib:
            parent.set(key, _NUMBER.sub(lambda m: f"{float(m[0]):.1f}", parent.attrib[key]))


def _share_marks(root: ET.Element, name: str) -> None:
    """Marks that differ in nothing but their place are drawn by reference."""

    def look(mark: ET.Element) -> tuple:
        return tuple(sorted((k, v) for k, v in mark.attrib.items() if k != "transform"))

    def is_mark(element: ET.Element) -> bool:
        placed = _TRANSLATE.fullmatch(element.get("transform", ""))
        return element.tag == f"{{{_SVG}}}path" and placed is not None

    looks = Counter(look(e) for e in root.iter() if is_mark(e))
    shared: dict[tuple, str] = {}
    definitions = ET.Element(f"{{{_SVG}}}defs")
    for element in root.iter():
        if not is_mark(element) or looks[look(element)] < 10:
            continue
        key = look(element)
        if key not in shared:
            shared[key] = f"{name}-m{len(shared)}"
            ET.SubElement(definitions, element.tag, dict(key) | {"id": shared[key]})
        x, y = _TRANSLATE.findall(element.attrib["transform"])[0]
        element.tag = f"{{{_SVG}}}use"
        element.attrib.clear()
        element.attrib.update({"href": f"#{shared[key]}", "x": f"{float(x):g}", "y": f"{float(y):g}"})
    if len(definitions):
        root.insert(0, definitions)
