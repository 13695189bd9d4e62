"""Names of internal columns: every one begins with the prefix that no declared column may begin with."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import upsert_platform
from upsert_platform.core.internal_columns import PREFIX, internal, is_internal
from upsert_platform.declarations.validate import RESERVED_COLUMNS

ROOT: Final = Path(upsert_platform.__file__).parent
NAMED_BY: Final = {
    "withColumn": 0, "withColumns": 0, "withColumnRenamed": 1, "alias": 0, "append_column": 0, "add_column": 1,
    "set_column": 1, "field": 0, "table": 0, "record_batch": 0, "from_pydict": 0, "schema": 0, "rename_columns": 0,
    "StructField": 0, "Field": 0,
}  # fmt: skip
"""Functions that give names to columns, and which argument does; of tables ``names`` does too."""
WITHOUT_DECLARED_COLUMNS: Final = {
    "changelog/change_rows.py": {"at"},
    "changelog/data_files.py": {"path"},
    "changelog/latest.py": {"between", "order", "partition", "within"},
    "changelog/refused.py": {"k", "k{}", "batch", "key"},
    "changelog/refused_files.py": {"at", "batch"},
    "changelog/rows.py": {"key", "value"},
    "changelog/account_sums.py": {"topic"},
    "changelog/summed_in_tasks.py": {"id", "keys", "told"},
    "datagen/source.py": {"rows_{}"},
    "graph/replay.py": {""},
    "sync/checkups/lake.py": {"n"},
    "sync/appended_rows.py": {"k{}"},
    "sync/destination_hop.py": {"deleted", "deletes", "k{}", "met"},
    "sync/replay_topic.py": {"c{}"},
    "sync/verify.py": {"count", "found", "k{}", "p{}", "{}{}"},
    "kafka/source/source.py": {"id"},
    "maxcompute/changes.py": {"_change", "_changed_at"},
    "maxcompute/frame_rows.py": {"last", "order", "row", "rows"},
    "maxcompute/lookup.py": {"split"},
    "maxcompute/read_back.py": {"split"},
    "maxcompute/rows.py": {"__operation", "__value_cols"},
    "mysql/chunk_sums.py": {"hash", "high", "id", "low", "number", "rows", "shown", "total"},
    "mysql/proof_tasks.py": {"hash", "id", "number", "place", "rows", "shown", "total"},
    "proofs/database.py": {"absent", "hashes", "last", "number", "prev", "rows", "status", "total", "until"},
    "postgres/source.py": {"first", "last"},
    "proofs/plan.py": {"c{}"},
    "proofs/proof.py": {"batch"},
    "engine/accumulators.py": {"{}_nan", "_"},
    "engine/aggregate.py": {"nan", "value", "value_max", "group"},
    "engine/exact.py": {"code", "limb", "value"},
    "engine/runners.py": {"answer"},
    "engine/tasks.py": {"_"},
    "tablestore/connect/compare.py": {"count", "difference", "key", "status"},
    "tablestore/connect/frame.py": {"batch", "first", "timestamp"},
    "tablestore/connect/reading.py": {"cells"},
    "writing/not_null.py": {"key", "value"},
    "writing/refused_output.py": {"file", "key", "reason", "row", "stats"},
}
"""File to names of columns, or fields of structs, without declared ones beside them; of MaxCompute what it reserves."""
IN_SQL: Final = re.compile(r"\bAS `?(_\w+)|(?<![\w`])`?(_\w+)`? (?:BIGINT|INT|STRING|BOOLEAN|BINARY|TIMESTAMP)\b")
"""A name that a text of Spark SQL, or of Spark's DDL, gives to a column."""
ELSEWHERE: Final = ("local", "referee", "spark", "cli", "demo")
"""Rooms that no row of a user passes through under the names of its columns."""


def _texts(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that are names of columns: of a dict its keys, of a list its items."""
    match node:
        case ast.Dict():
            for key in node.keys:
                if key is not None:
                    yield from _texts(key)
        case ast.DictComp():
            yield from _texts(node.key)
        case ast.List() | ast.Tuple():
            for item in node.elts:
                yield from _texts(item)
        case ast.Starred():
            yield from _texts(node.value)
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field")) if node.args:
            return  # is looked at by itself
        case ast.ListComp() | ast.GeneratorExp():
            yield from _texts(node.elt)
        case _:
            yield node


def _name(node: ast.expr, module: object) -> str | None:
    """A name that stands in the source, with ``{}`` for its variable parts; None for one that is computed."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr():
            return "".join(_name(part, module) or "{}" for part in node.values)
        case ast.FormattedValue():
            return _name(node.value, module) or "{}"
        case ast.Name() if node.id.isupper() or node.id.strip("_").isupper():
            found = getattr(module, node.id, None)
            return found if isinstance(found, str) else None
        case ast.Call(func=ast.Name(id="internal")):
            return internal("{}")
    return None


def _named(source: str, module: object) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in NAMED_BY:
            continue
        given = node.args[NAMED_BY[called] :][:1] + [item.value for item in node.keywords if item.arg == "names"]
        for expression in (each for item in given for each in _texts(item)):
            found = _name(expression, module)
            if found is not None and any(char.isalnum() for char in found.replace("{}", "")) | (found in ("_", "")):
                yield node.lineno, found


def _named_in_sql(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, name) for found in IN_SQL.findall(node.value) for name in found if name)


def _strangers(source: str, module: object, known: set[str]) -> list[str]:
    return [
        f"{line}: {name!r}"
        for line, name in (*_named(source, module), *_named_in_sql(source))
        if not is_internal(name) and name.lower() not in RESERVED_COLUMNS and name not in known
    ]


def test_every_column_that_the_source_names_is_internal_reserved_or_stands_beside_no_declared_one() -> None:
    wrong = {}
    for file in sorted(ROOT.rglob("*.py")):
        place = str(file.relative_to(ROOT))
        if place.split("/")[0] in ELSEWHERE or file.name == "__init__.py":
            continue
        text = file.read_text("utf-8")
        if not any(f"{name}(" in text for name in NAMED_BY):
            continue
        module = importlib.import_module(f"upsert_platform.{place.removesuffix('.py').replace('/', '.')}")
        found = _strangers(text, module, WITHOUT_DECLARED_COLUMNS.get(place, set()))
        if found:
            wrong[place] = found
    assert wrong == {}, "use `internal`, or list a name of a frame without declared columns"


def test_a_name_without_the_prefix_is_found_however_it_is_given() -> None:
    module = type("module", (), {"SPAN": "_span", "GOOD": internal("x")})
    for text in (
        'f.withColumn("_span", 1)', "f.withColumn(SPAN, 1)", 'c.alias(f"_was{n}")', 'pa.table({"_code": a})',
        'pa.table([a], names=[*k, "_number"])', 't.append_column("_share", a)', 'pa.schema([pa.field("_w", k)])',
        'f.withColumns({f"_key{n}": c for n in k})', 'StructField("_bucket", k)', 't.rename_columns(["_a"])',
        'f"SELECT {x} AS _number"', 'ddl = "topic STRING, _end BIGINT"',
    ):  # fmt: skip
        assert _strangers(text, module, set()), text
    for text in ("f.withColumn(GOOD, 1)", 'f.alias(internal("y"))', "f.alias(name)", 'f.withColumn("_op", 1)'):
        assert not _strangers(text, module, set()), text


def test_names_are_internal_in_any_case() -> None:
    assert PREFIX == "__upsert_"
    assert is_internal("__UPSERT_span")
    assert not is_internal("_span")
