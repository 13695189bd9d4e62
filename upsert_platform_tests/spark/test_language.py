"""What Spark SQL computes does not follow the language of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

import pyarrow as pa
import pytest

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.native import native_form

pytestmark = pytest.mark.whole_runs

WORDS: Final = ("title", "TITLE", "TİTLE", "tıtle", "İ", "iß", "IJ", "éi")
CASES: Final[dict[str, list[bool]]] = {
    "LOWER(`w`) = 'title'": [True, True, False, False, False, False, False, False],
    "UPPER(`w`) = 'TITLE'": [True, True, False, True, False, False, False, False],
    "LOWER(`w`) = 'i'": [False] * 8,
    "UPPER(`w`) = 'ISS'": [False, False, False, False, False, True, False, False],
    "LOWER(`w`) = 'ij'": [False, False, False, False, False, False, True, False],
}
"""Conditions, and for which words they hold by the rules that Unicode has for all languages but a few."""
_PROGRAM: Final = """
import json, sys
from upsert_platform.spark.session import open_session
words, texts = json.load(sys.stdin)
session = open_session(brief=True)
rows = session.createDataFrame([(word,) for word in words], "w STRING").coalesce(1)
found = [[row[0] for row in rows.selectExpr(text).collect()] for text in (*texts, "UPPER(w)", "UPPER('éi')")]
print(json.dumps(found))
session.stop()
"""


def test_case_is_that_of_arrow_on_a_turkish_machine() -> None:
    options = "-Duser.language=tr -Duser.country=TR"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=json.dumps([WORDS, list(CASES)]), capture_output=True, text=True,
        check=False, timeout=300, env={**os.environ, "JAVA_TOOL_OPTIONS": options, "LC_ALL": "tr_TR.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *found, upper, constant = json.loads(done.stdout.splitlines()[-1])
    assert dict(zip(CASES, found, strict=True)) == CASES
    assert (upper[-1], constant[0]) == ("ÉI", "ÉI")
    table, types = pa.table({"w": pa.array(WORDS)}), {"w": LogicalType(TypeName.STRING)}
    for text, expected in CASES.items():
        form = native_form(text, types)
        assert form is not None
        assert evaluate(form, table).to_pylist() == expected, text
