"""Every case of the connector's catalogue (specification 8.1 to 8.8) has a test that carries its number, or a reason.

A number is carried by the name of a test (`test_67_...`, `test_40_41_...`), or by the beginning of the text that names
a row of a table of cases (``"66 array"``, ``"33 35 36"``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from upsert_platform_tests.graph.connector_cases import CASES, POINTS

LAST_CASE = 94
WITHOUT = {
    44: "one byte per int8 of a map is how the connector's first release wrote keys; section 3.2 replaces it, and a map"
    " is neither key nor column (41)",
}
BY_ROWS_OF_A_TOPIC = {
    *range(1, 44),
    *range(47, 55),
    *range(56, 60),
    *range(61, 73),
    74,
    *range(76, 80),
    81,
    82,
    85,
    90,
    92,
}
"""Cases that a sync decides, of a topic into a table; the others are of configurations, requests and their answers."""
_TESTS = Path(__file__).parents[1]
_BY_NAME = [*(_TESTS / "tablestore").rglob("test_*.py"), *(_TESTS / "graph").glob("test_connect*.py")]


def _leading(tokens: Iterable[str]) -> Iterator[int]:
    for token in tokens:
        if not re.fullmatch(r"\d\d", token):
            return
        yield int(token)


def _carried_by(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from _leading(node.name.removeprefix("test_").split("_"))
        elif isinstance(node, ast.Tuple) and node.elts and isinstance(first := node.elts[0], ast.Constant):
            yield from _leading(str(first.value).split())


def _synced() -> set[int]:
    """Numbers of the cases whose rows are read back after a sync."""
    names = [*(case.rule for case in CASES), *(rule for rule, *_ in POINTS)]
    found = {number for name in names for number in _leading(name.split())}
    return found.union(*(_carried_by(file) for file in _BY_NAME if file.parent.name == "graph"))


def test_every_case_has_a_test_or_a_reason() -> None:
    found = _synced().union(*(_carried_by(file) for file in _BY_NAME))
    cases = set(range(1, LAST_CASE + 1))
    assert sorted(cases - found) == sorted(WITHOUT)
    assert all(len(reason) > 40 for reason in WITHOUT.values())


def test_cases_about_rows_go_through_a_topic_and_a_sync() -> None:
    assert sorted(BY_ROWS_OF_A_TOPIC - _synced()) == []
