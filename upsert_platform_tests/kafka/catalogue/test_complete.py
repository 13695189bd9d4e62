"""Every behaviour of the catalogue is tested, or listed with the reason why it is not."""

from __future__ import annotations

import ast
from pathlib import Path

from upsert_platform_tests.kafka.catalogue.cases import LAST, NOT_APPLICABLE, NOT_YET, UPSERT_VIEW


def covered() -> set[int]:
    """Numbers that the modules beside this one give to `case` and `behaviour`."""
    found: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("case", "behaviour"):
                number = node.args[0]
                assert isinstance(number, ast.Constant), ast.unparse(node)
                found.add(int(number.value))  # type: ignore[arg-type]
    return found


def test_no_number_is_forgotten() -> None:
    listed = {*NOT_YET, *NOT_APPLICABLE}
    assert sorted(set(range(1, LAST + 1)) - covered() - listed) == []


def test_nothing_is_listed_that_is_covered() -> None:
    assert sorted(covered() & {*NOT_YET, *NOT_APPLICABLE}) == []
    assert sorted(set(NOT_YET) & set(NOT_APPLICABLE)) == []
    assert set(UPSERT_VIEW) <= covered()


def test_every_reason_is_a_sentence() -> None:
    assert all(len(reason) > 10 for reason in (*NOT_YET.values(), *NOT_APPLICABLE.values()))
