"""Changelogs of a given size for measuring queries, written straight from Arrow."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, write_files
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.connector import KeyReader
from upsert_platform.core.model import Table
from upsert_platform.core.plan import Query
from upsert_platform.engine.engine import QueryBatch, advance, plan_batch
from upsert_platform.engine.runners import Runner
from upsert_platform.engine.store import QueryStore
from upsert_platform.sql.variables import Variables
from upsert_platform.sync.connectors import searchable
from upsert_platform_tests.sql.reading import read_scripts

_PART = 1_000_000


class Load:
    """Changelogs of declared tables, and a query over them.

    Args:
        sql: CREATE TABLE of the tables and of one target, and one INSERT INTO.
        runner: carries the query out.
    """

    def __init__(self, folder: Path, sql: str, runner: Runner) -> None:
        scripts, problems = read_scripts({"bench.sql": sql}, Variables({}, {}, {}))
        assert not [item for item in problems if item.severity == "error"], problems
        (insert,) = scripts.inserts
        assert insert.query is not None
        self.query: Query = insert.query
        self.tables: dict[str, Table] = dict(scripts.tables)
        self.runner = runner
        self.lookups = {name: self._reader(name) for name in self.query.lookups}
        self.folder = folder / uuid.uuid4().hex
        self.inputs = {
            name: ChangelogStore(
                str(self.folder / name), self.tables[name], mode="upsert" if self.tables[name].primary_key else "append"
            )
            for name in self.query.tables
        }
        self.store = QueryStore(str(self.folder / "query"), self.query)
        self.offset = 0
        self.kept: dict[str, list[pa.Table]] = {name: [] for name in self.query.tables}

    def _reader(self, name: str) -> KeyReader:
        reader, problems = searchable()[self.tables[name].connector].key_reader(self.tables[name])
        assert reader is not None, problems
        return reader

    def append(self, name: str, columns: dict[str, Any], *, deletes: np.ndarray | None = None) -> None:
        """Commits a batch of rows.

        Args:
            columns: of numpy arrays or Arrow arrays.
            deletes: which of them are tombstones.
        """
        store = self.inputs[name]
        table = self.tables[name]
        head = store.create()
        schema = rows.arrow_schema(table)
        count = len(next(iter(columns.values())))
        kind = rows.KIND_UPDATE_AFTER if table.primary_key else rows.KIND_INSERT
        kinds = np.full(count, kind, dtype=object)
        if deletes is not None:
            kinds[deletes] = rows.KIND_DELETE
        given = {
            **{key: value if isinstance(value, pa.Array) else pa.array(value) for key, value in columns.items()},
            rows.KIND: pa.array(kinds, pa.string()),
            rows.TOPIC: pa.repeat(pa.scalar(name), count),
            rows.PARTITION: pa.repeat(pa.scalar(0, pa.int32()), count),
            rows.OFFSET: pa.array(np.arange(self.offset, self.offset + count)),
            rows.ROW: pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        self.offset += count
        names = [*columns, rows.KIND, rows.OFFSET]
        self.kept[name].append(pa.table([given[item] for item in names], names=names))
        files: list[DataFile] = []
        for start in range(0, count, _PART):
            part = {key: value.slice(start, _PART) for key, value in given.items()}
            size = len(part[rows.KIND])
            batch = pa.RecordBatch.from_arrays(
                [
                    part[item.name].cast(item.type) if item.name in part else pa.nulls(size, item.type)
                    for item in schema
                ],
                schema=schema,
            )
            for manifest in write_files([batch], location=store.location, schema=schema, batch=head.batch + 1):
                files += [DataFile(**item) for item in manifest.to_pylist()]
        assert store.append(files, head=head, positions=Positions(), run="bench") is not None

    def snapshots(self) -> duckdb.DuckDBPyConnection:
        """A database with what each changelog ends with as a table; of a key the row with the greatest offset."""
        connection = duckdb.connect()
        for name, parts in self.kept.items():
            connection.register(f"kept_{name}", pa.concat_tables(parts))
            key = self.tables[name].primary_key
            last = f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {key[0]} ORDER BY _offset DESC) = 1" if key else ""
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * EXCLUDE (_kind, _offset) FROM (SELECT * FROM kept_{name} {last})"
                f" WHERE _kind <> '{rows.KIND_DELETE}'"
            )
        return connection

    def judge(self, sql: str) -> float:
        """Compares the result with what DuckDB makes of the statement over the snapshots.

        Args:
            sql: the statement, with the columns in the order of the query's.

        Returns:
            Seconds that DuckDB took for it, from the rows in memory.
        """
        started = time.monotonic()
        connection = self.snapshots()
        connection.execute(f"CREATE TABLE expected AS {sql}")
        seconds = time.monotonic() - started
        names = ", ".join(field.name for field in self.query.plan.fields)
        kinds = f"('{rows.KIND_UPDATE_AFTER}', '{rows.KIND_DELETE}')"
        files = [f"{self.store.uri}/{item.path}" for item in self.store.result_files()]
        connection.execute(
            f"CREATE TABLE found AS SELECT {names} FROM (SELECT * FROM read_parquet($1) WHERE _kind IN {kinds} QUALIFY"
            f" ROW_NUMBER() OVER (PARTITION BY {', '.join(self.query.key)} ORDER BY _batch DESC) = 1)"
            f" WHERE _kind = '{rows.KIND_UPDATE_AFTER}'",
            [files],
        )
        (count, different) = connection.execute(
            "SELECT (SELECT COUNT(*) FROM expected), (SELECT COUNT(*) FROM ((FROM found EXCEPT ALL FROM expected) UNION"
            " ALL (FROM expected EXCEPT ALL FROM found)))"
        ).fetchall()[0]
        assert count
        assert not different, f"{different} rows of {count} differ"
        return seconds

    def advance(self) -> list[QueryBatch]:
        """Computes everything that is new."""
        done: list[QueryBatch] = []
        while (plan := plan_batch(self.store, self.inputs)).is_due:
            batch = advance(self.store, plan, runner=self.runner, run="bench", lookups=self.lookups)
            assert batch is not None
            done.append(batch)
        return done
