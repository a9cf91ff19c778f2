"""Take the pictures of docs/report.md from a report: `python -m tests.report.pictures REPORT.html docs/pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser import launched

LARGEST = 300_000
"""Bytes of one picture."""

_PARTS = {
    "report-verdict": (".verdict", 900, "light"),
    "report-changes": ("section:has(#changes)", 900, "light"),
    "report-lag": ("section:has(#watermark) figure >> nth=0", 900, "light"),
    "report-watermark": ("section:has(#watermark) figure >> nth=-1", 900, "light"),
    "report-watermark-dark": ("section:has(#watermark) figure >> nth=-1", 900, "dark"),
    "report-live": ("section:has(#live)", 900, "light"),
    "report-corrections": ("section:has(#corrections)", 900, "light"),
    "report-late": ("section:has(#late)", 900, "light"),
    "report-advisor": ("section:has(#advisor)", 900, "light"),
    "report-phone": ("section:has(#late)", 390, "light"),
}


def take(page_file: Path, folder: Path) -> None:
    """One PNG for each part of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    with launched() as browser:
        for name, (selector, width, scheme) in _PARTS.items():
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            page.goto(page_file.resolve().as_uri())
            # Long tables are cut: the pictures show the kind, not the data.
            page.add_style_tag(content="tbody tr:nth-child(n+7) { display: none } section { border: 0 !important }")
            target = folder / f"{name}.png"
            page.locator(selector).screenshot(path=target)
            context.close()
            if target.stat().st_size > LARGEST:
                sys.exit(f"{target} has {target.stat().st_size:,} bytes, more than {LARGEST:,}")
            print(target, f"{target.stat().st_size:,} bytes")


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
