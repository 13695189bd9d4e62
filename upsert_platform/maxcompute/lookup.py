"""Rows of a MaxCompute table for queries that find them by their keys as others arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.connector import KeyReader
from upsert_platform.core.errors import DestinationError, Problem
from upsert_platform.core.model import Table
from upsert_platform.core.types import TypeName
from upsert_platform.maxcompute.clients import Clients
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.reader import MOST_PREDICATE_KEYS, read_task
from upsert_platform.maxcompute.stored import is_named, key_predicate
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import stores

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.maxcompute.client import TableState
    from upsert_platform.maxcompute.read_back import Reading


def lookup_problems(table: Table, checked: MaxComputeTable) -> Iterator[Problem]:
    """Yield the reasons for which rows of a declared table cannot be looked up by key."""
    plan = checked.partitions
    if plan.dynamic:
        yield Problem(
            f"table '{table.name}': rows are found in a table without partitions, or in one partition that"
            f" 'sink.partition' names in full; it has the partition columns {', '.join(plan.dynamic)}",
            table.location,
        )
    for column, kind in zip(checked.columns, checked.types, strict=True):
        padded = kind.root == "CHAR" or (column.type is not None and column.type.name is TypeName.CHAR)
        if column.name in checked.primary_key and padded:
            yield Problem(
                f"table '{table.name}': key column '{column.name}' is CHAR, whose blanks at the end the table does not"
                " keep: rows are not found by it; declare it STRING",
                column.location or table.location,
            )


@dataclass(frozen=True, slots=True)
class MaxComputeKeyReader(KeyReader):
    """Reads by a session of the declared interface: the rows of some thousand keys, or the whole table for more."""

    table: MaxComputeTable

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Asks for the table as it is, and compares it with the declaration."""
        clients = Clients(self.table)
        try:
            actual = clients.project.table(self.table.target)
            self._check(actual)
            assert actual is not None
            reading = clients.reading(actual)
            yield lambda keys: self._rows(keys, reading)
        finally:
            clients.close()

    def _check(self, actual: TableState | None) -> None:
        """A table that has more columns than are declared serves as well."""
        what = f"table '{self.table.name}' ({self.table.target})"
        if actual is None:
            raise DestinationError(f"{what}, in which a query finds rows, does not exist")
        wrong = []
        for column, kind in self.table.data_columns:
            assert column.type is not None
            found = actual.column(column.name.lower())
            if found is None:
                wrong.append(f"it has no column '{column.name}'")
            elif not stores(found.type, kind, column.type):
                wrong.append(f"column '{column.name}' is {found.type}, and declared {column.type}")
            elif column.name in self.table.primary_key and found.type.root == "CHAR":
                wrong.append(f"key column '{column.name}' is {found.type}, by which rows are not found")
        here = [column.name for column in actual.partition_columns]
        if here != [name for name, _ in self.table.partitions.static]:
            wrong.append(f"its partition columns are ({', '.join(here)}), which 'sink.partition' does not name in full")
        if wrong:
            raise DestinationError(f"{what} does not fit its declaration: {'; '.join(wrong)}")

    def _rows(self, keys: pa.Table, reading: Reading) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from upsert_platform.maxcompute.read_back import declared_columns, open_job

        columns = declared_columns(reading.table, reading.actual)
        named = [item for item in columns if item.name in self.table.primary_key and item.fixed is None]
        named = [item for item in named if is_named(item.declared)]
        predicate = ""
        if named and keys.num_rows <= MOST_PREDICATE_KEYS:
            values = zip(*(keys.column(item.name).to_pylist() for item in named), strict=True)
            predicate = key_predicate(list(values), [(item.source, item.declared, item.kind) for item in named])
        try:
            job = open_job(columns, reading, predicate)
            splits = pa.record_batch([pa.array(range(job.session.splits), pa.int64())], names=["split"])
            yield from read_task(iter([splits]), job)
        except ServiceError as error:
            explain(error, reading.client.connection, f"reading {self.table.target}")
