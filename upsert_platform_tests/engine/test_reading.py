"""What tasks read of a changelog: every change of new batches once, however its files are divided."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_files
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.plan import Field, Scan
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.engine import reading
from upsert_platform.engine.reading import ChangelogShare, Piece, read_changes
from upsert_platform.engine.steps import WEIGHT

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
