"""Names that suites of earlier versions may have, and those of today."""

from __future__ import annotations

import json
import re
from typing import Any

from spark_jobs.lakehouse.verdict import EARLIER_NAMES

EARLIER_TYPES = {"expect_rows_to_be_told_apart_by_columns": "expect_rows_to_be_unique_by_columns"}
EARLIER_EXPECTATIONS = {"live/no-drift": "live/no-mismatch", "live/none-unexpected": "live/none-extra"}
"""Expectations of the common suites, as a suite that leaves them out names them."""

_COLUMNS = EARLIER_NAMES | {f"run_{earlier}_share": f"run_{name}_share" for earlier, name in EARLIER_NAMES.items()}
_COLUMN = re.compile(r"\b(" + "|".join(_COLUMNS) + r")\b")


def in_todays_words(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an expectation about the live job, with the names that columns have today."""
    return json.loads(_COLUMN.sub(lambda found: _COLUMNS[found[0]], json.dumps(kwargs)))
