"""A bit of a data file that changed on its disk is an error that names the file, and never another value."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import read_rows, write_rows
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError

CASES = 60


def test_each_changed_bit_of_a_data_file_is_refused_by_the_files_name(tmp_path: Path) -> None:
    """Without checksums a third of such files decode to other values."""
    kept = rows.system_schema()
    columns = pa.schema([kept.field(rows.BATCH), kept.field(rows.KIND), pa.field("name", pa.string())])
    count = 5000
    names = [f"name {row * 7919 % 100_003}" for row in range(count)]
    table = pa.Table.from_arrays(
        [pa.array([1] * count, columns.field(0).type), pa.array([rows.KIND_UPDATE_AFTER] * count), pa.array(names)],
        schema=columns,
    )
    location = TableLocation(str(tmp_path))
    (written,) = write_rows(iter(table.to_batches()), location=location, schema=columns)
    path = tmp_path / written.path
    content = path.read_bytes()
    chance = random.Random(5)
    pages = len(content) - pq.read_metadata(path).serialized_size - 8
    for _ in range(CASES):
        changed = bytearray(content)
        changed[chance.randrange(4, pages)] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(ChangelogError, match=rf"{path}: cannot be read, it is damaged .*restore it from a copy"):
            list(read_rows(location, [written.path], schema=columns))
    path.write_bytes(content)
    assert sum(item.num_rows for item in read_rows(location, [written.path], schema=columns)) == count
