"""Rows of small tables that lookup joins read whole: once per batch by the driver, for all tasks of the batch.

The driver writes them beside the exchanges of the attempt, so all tasks find what the table held when the batch began,
whatever becomes of it meanwhile. A process that carries out tasks reads them once, and keeps the last few.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.exchanges import FOLDER
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.connector import KeyReader, WholeTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HeldRows(KeyReader):
    """Finds rows in a file of the attempt.

    Attributes:
        location: of the query's table.
        path: of the file below it; no other file ever has this name.
    """

    location: TableLocation
    path: str

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Reads the file, unless this process has it; every question is answered by all rows."""
        table = _read(self.location, self.path)
        yield lambda keys: iter(table.to_batches())


def hold(table: WholeTable, location: TableLocation, *, attempt: str) -> HeldRows:
    """Read a table and write its rows for the tasks of an attempt.

    Args:
        location: of the query's table.

    Raises:
        DestinationError, EndpointError: as `WholeTable.rows`.
        ChangelogError: the lake cannot be written.
    """
    from pyarrow import ipc

    found = table.rows()
    system, folder = file_system(location)
    below = f"{FOLDER}/{attempt}"
    path = f"{below}/held-{uuid.uuid4().hex}.arrow"
    with naming(f"{folder}{path}", writes=True):
        system.create_dir(f"{folder}{below}", recursive=True)
        with system.open_output_stream(f"{folder}{path}") as sink, ipc.new_file(sink, found.schema) as writer:
            writer.write_table(found)
    return HeldRows(location, path)


@lru_cache(maxsize=4)
def _read(location: TableLocation, path: str) -> pa.Table:
    from pyarrow import ipc

    system, folder = file_system(location)
    with naming(f"{folder}{path}"), system.open_input_file(f"{folder}{path}") as file:
        return ipc.open_file(file).read_all()
