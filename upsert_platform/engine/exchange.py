"""Rows on their way from one stage to the next: an Arrow file per task, with a part per bucket.

The files lie beside the data of the query's table, in a folder that readers of Delta Lake pass over, and are deleted
when the batch is committed. So what one stage hands to the next does not pass through the JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.exchanges import FOLDER
from upsert_platform.engine.keys import bucket_rows, place_rows


@dataclass(frozen=True, slots=True)
class Part:
    """The output of a task for the buckets of an exchange.

    Attributes:
        path: relative to the query's table.
        index: bucket to the numbers of its record batches in the file.
    """

    exchange: int
    path: str
    index: Mapping[int, tuple[int, ...]]
    rows: int


class ExchangeWriter:
    """Writes one file of an exchange.

    Args:
        folder: of the query's table in `system`, with the separator at its end.
        group: columns that choose a row's bucket.
        rest: columns that choose it too, when rows of a group are spread.
    """

    def __init__(
        self,
        exchange: int,
        *,
        system: Any,
        folder: str,
        attempt: str,
        buckets: int,
        group: Sequence[str],
        rest: Sequence[str] = (),
        spread: bool = False,
    ) -> None:
        self._exchange = exchange
        self._system = system
        self._path = f"{FOLDER}/{attempt}/{exchange}-{uuid.uuid4().hex}.arrow"
        self._folder = folder
        self._buckets = buckets
        self._group, self._rest, self._spread = group, rest, spread
        self._writer: Any = None
        self._sink: Any = None
        self._index: dict[int, list[int]] = {}
        self._batches = self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Writes rows to their buckets."""
        if not table.num_rows:
            return
        places = place_rows(table, self._group, self._rest)
        buckets = bucket_rows(places, self._buckets, spread=self._spread)
        # Numbers of 16 bits are sorted by their digits, in time that follows their count.
        order = np.argsort(buckets.astype(np.uint16), kind="stable")
        ordered = buckets[order]
        table = table.take(pa.array(order)).combine_chunks()
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        ends = np.append(starts[1:], len(ordered))
        with self._naming():
            if self._writer is None:
                self._system.create_dir(f"{self._folder}{self._path.rpartition('/')[0]}", recursive=True)
                self._sink = self._system.open_output_stream(f"{self._folder}{self._path}")
                self._writer = ipc.new_file(self._sink, table.schema)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                for item in table.slice(start, end - start).to_batches():
                    self._writer.write_batch(item)
                    self._index.setdefault(int(ordered[start]), []).append(self._batches)
                    self._batches += 1
        self._rows += table.num_rows

    def close(self) -> Part | None:
        """The file that was written; None when there were no rows."""
        if self._writer is None:
            return None
        with self._naming():
            self._writer.close()
            self._sink.close()
        index = {bucket: tuple(numbers) for bucket, numbers in self._index.items()}
        return Part(self._exchange, self._path, index, self._rows)

    def _naming(self) -> AbstractContextManager[None]:
        return naming(f"{self._folder}{self._path}", writes=True)


def read_parts(parts: Iterable[Part], bucket: int | None, *, system: Any, folder: str) -> pa.Table | None:
    """The rows of a bucket (of all with None); None when there are none."""
    found = list(read_batches(parts, bucket, system=system, folder=folder))
    tables = [pa.Table.from_batches([item]) for item in found]  # of several schemas, perhaps
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


def read_batches(parts: Iterable[Part], bucket: int | None, *, system: Any, folder: str) -> Iterator[pa.RecordBatch]:
    """As `read_parts`, one record batch after the other: those of a file have one schema."""
    for part in parts:
        numbers = (
            part.index.get(bucket, ()) if bucket is not None else [n for each in part.index.values() for n in each]
        )
        if not numbers:
            continue
        path = f"{folder}{part.path}"
        with naming(path), ipc.open_file(system.open_input_file(path)) as opened:
            for number in numbers:
                yield opened.get_batch(number)
