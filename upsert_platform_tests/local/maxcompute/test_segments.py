"""Files of segments: a few columns are read without the others, and give the same as of a file that is in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.local.maxcompute.schema import OPERATION, OPERATION_ID, Column
from upsert_platform.local.maxcompute.storage.segments import SegmentFiles
from upsert_platform.local.maxcompute.types import parse_type

NAMES = ("a", "b", "c", "d", "e", "f")
COLUMNS = [Column(name, parse_type("bigint"), column_id=number) for number, name in enumerate(NAMES, start=1)]
LATER = Column("later", parse_type("string"), column_id=99)


@pytest.mark.parametrize("chosen", [["a"], ["f", "b"], ["later"], ["later", "c"], list(NAMES)])
@pytest.mark.parametrize("operations", [True, False])
def test_few_columns_are_those_of_the_whole_file(tmp_path: Path, chosen: list[str], operations: bool) -> None:
    rows = pa.table({name: [number, None, 10 * number] for number, name in enumerate(NAMES)})
    rows = rows.append_column(OPERATION, pa.array([85, 68, 85], pa.int8()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows, max_chunksize=2)
    ids = [*(column.column_id for column in COLUMNS), OPERATION_ID]
    file = SegmentFiles(tmp_path).write_bytes(sink.getvalue().to_pybytes(), rows=3, columns=ids)
    wanted = [next(column for column in (*COLUMNS, LATER) if column.name == name) for name in chosen]
    expected = [None, None, None]
    for warm in (False, True):
        files = SegmentFiles(tmp_path)
        if warm:
            files.read(file)
        found = files.aligned(file, wanted, operations=operations).to_pydict()
        assert found == {
            **{name: expected if name == "later" else rows.column(name).to_pylist() for name in chosen},
            **({OPERATION: [85, 68, 85]} if operations else {}),
        }
