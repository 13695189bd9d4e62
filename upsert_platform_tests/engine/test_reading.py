"""What tasks read of a changelog: every change of new batches once, however its files are divided."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_files
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import Expression, Field, Scan
from upsert_platform.core.types import LogicalType, TypeName, arrow_type, parse_type
from upsert_platform.engine import reading
from upsert_platform.engine.reading import ChangelogShare, Piece, read_changes
from upsert_platform.engine.steps import WEIGHT, FilterStep, ProjectStep, Step, fields_read
from upsert_platform_tests.engine.world import Kept, World, plan_query

KINDS = {
    "added": [[rows.KIND_INSERT]] * 6,
    "added, set aside and accounted for": [[rows.KIND_INSERT], [rows.KIND_INSERT, "?"], [rows.KIND_INSERT], ["#"]],
    "changes": [[rows.KIND_INSERT, rows.KIND_DELETE], [rows.KIND_INSERT], [rows.KIND_DELETE]],
}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_every_change_of_new_batches_is_read_once(
    kinds: str, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 7)
    rng = random.Random(parts)
    schema = pa.schema([*rows.system_schema(), pa.field("id", pa.int64())])
    written: list[dict[str, Any]] = []
    groups: list[pa.RecordBatch] = []
    for at, some in enumerate(KINDS[kinds]):
        found = [
            {rows.BATCH: 1 + at // 2 + rng.randrange(2), rows.KIND: rng.choice(some), "id": len(written) + number}
            for number in range(rng.randrange(1, 6))
        ]
        written += found
        groups.append(pa.RecordBatch.from_pylist(found, schema=schema))
    location = TableLocation(str(tmp_path))
    (manifest,) = write_files(groups, location=location, schema=schema, batch=None)
    (path,) = manifest.column("path").to_pylist()
    scan = Scan("t", (Field("id", LogicalType(TypeName.BIGINT)),), (), appended=kinds != "changes")
    taken: list[tuple[int, int]] = []
    for part in range(parts):
        share = ChangelogShare(location, (Piece(path, part, parts),), 1, 3)
        for table in read_changes(share, scan, upserts=False):
            taken += zip(table.column("id").to_pylist(), table.column(WEIGHT).to_pylist(), strict=True)
    signs = {rows.KIND_INSERT: 1, rows.KIND_DELETE: -1}
    new = [item for item in written if 1 < item[rows.BATCH] <= 3]
    assert taken == [(item["id"], signs[item[rows.KIND]]) for item in new if item[rows.KIND] in signs]


ROW = parse_type("ROW<a INT, b ROW<c STRING, d BIGINT>, e STRING>")
NESTED = [
    {"a": 1, "b": {"c": "x", "d": 5}, "e": "one"}, None, {"a": None, "b": None, "e": "two"},
    {"a": 4, "b": {"c": None, "d": None}, "e": None},
]  # fmt: skip


@pytest.mark.parametrize("wanted", [("a",), ("b",), ("e", "a"), ("a", "b", "e")])
@pytest.mark.parametrize("name", ["item", "my.item"])
@pytest.mark.parametrize("older", [False, True])
def test_fields_of_a_row_are_read_alone(wanted: tuple[str, ...], name: str, older: bool, tmp_path: Path) -> None:
    kind = arrow_type(ROW)
    lacks = pa.struct([field for field in kind if field.name != "e"])  # a field was added since the file was written
    schema = pa.schema([*rows.system_schema(), pa.field(name, lacks if older else kind)])
    given = [{rows.BATCH: 1, rows.KIND: rows.KIND_INSERT, name: value} for value in NESTED]
    if older:
        for row in given:
            row[name] = {k: v for k, v in row[name].items() if k != "e"} if row[name] else None
    location = TableLocation(str(tmp_path))
    batch = pa.RecordBatch.from_pylist(given, schema=schema)
    (manifest,) = write_files([batch], location=location, schema=schema, batch=None)
    share = ChangelogShare(location, (Piece(manifest.column("path")[0].as_py()),), 0, 1)
    scan = Scan("t", (Field(name, ROW),), (), appended=True)
    (table,) = read_changes(share, scan, upserts=False, parts={name: wanted})
    assert table.schema.field(name).type == pa.struct([kind.field(field) for field in wanted])
    assert table.column(name).to_pylist() == [
        None if value is None else {field: None if older and field == "e" else value[field] for field in wanted}
        for value in NESTED
    ]


def test_only_the_columns_of_a_file_that_hold_wanted_fields_are_opened(tmp_path: Path) -> None:
    schema = pa.schema([*rows.system_schema(), pa.field("item", arrow_type(ROW))])
    given = [{rows.BATCH: 1, rows.KIND: rows.KIND_INSERT, "item": value} for value in NESTED]
    batch = pa.RecordBatch.from_pylist(given, schema=schema)
    (manifest,) = write_files([batch], location=TableLocation(str(tmp_path)), schema=schema, batch=None)
    file = tmp_path / manifest.column("path")[0].as_py()
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    (column,) = [found for found in columns if found.path_in_schema == "item.e"]
    data = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    file.write_bytes(data)
    share = ChangelogShare(TableLocation(str(tmp_path)), (Piece(file.name),), 0, 1)
    scan = Scan("t", (Field("item", ROW),), (), appended=True)
    (table,) = read_changes(share, scan, upserts=False, parts={"item": ("a", "b")})
    assert table.column("item").to_pylist()[0] == {"a": 1, "b": {"c": "x", "d": 5}}
    with pytest.raises(ChangelogError):
        list(read_changes(share, scan, upserts=False))


def _of(native: tuple[Any, ...]) -> Expression:
    return Expression("", LogicalType(TypeName.BIGINT), native)


A, B, WHOLE = ("field", ("column", "item"), "a"), ("field", ("column", "item"), "b"), ("column", "item")
ONE = ("literal", 1, LogicalType(TypeName.BIGINT))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([ProjectStep((("x", _of(A)), ("y", _of(("field", B, "c")))))], {"item": ("a", "b")}),
        ([FilterStep(_of(("=", B, ONE))), ProjectStep((("x", _of(A)),))], {"item": ("a", "b")}),
        ([ProjectStep((("x", _of(("case", ("=", A, ONE), B, ONE))),))], {"item": ("a", "b")}),
        ([ProjectStep((("x", _of(A)),)), FilterStep(_of(WHOLE))], {"item": ("a",)}),  # another column of that name
        ([ProjectStep((("x", _of(A)), ("y", _of(WHOLE))))], {}),
        ([ProjectStep((("x", _of(A)),), kept=("item",))], {}),
        ([FilterStep(_of(("=", A, ONE)))], {}),
        ([], {}),
    ],
)
def test_fields_that_steps_read(steps: list[Step], expected: dict[str, tuple[str, ...]]) -> None:
    assert fields_read(steps) == expected


def test_rows_of_state_are_no_changes(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query("SELECT COUNT(DISTINCT oid) AS n FROM orders"))
    world.change("orders", 200)
    done = kept.advance()
    assert done is not None
    assert done.state_rows > 20
    assert kept.store.about_rows(upto=done.head.batch) == done.written
