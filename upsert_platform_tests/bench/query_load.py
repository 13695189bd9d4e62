"""Changelogs of a given size for measuring queries, written straight from Arrow."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, write_files
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.model import Table
from upsert_platform.plan import Query
from upsert_platform.queries.engine import QueryBatch, advance, plan_batch
from upsert_platform.queries.runners import Runner
from upsert_platform.queries.store import QueryStore
from upsert_platform.sql.variables import Variables
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
        self.folder = folder / uuid.uuid4().hex
        self.inputs = {
            name: ChangelogStore(
                str(self.folder / name), self.tables[name], mode="upsert" if self.tables[name].primary_key else "append"
            )
            for name in self.query.tables
        }
        self.store = QueryStore(str(self.folder / "query"), self.query)
        self.offset = 0

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

    def advance(self) -> list[QueryBatch]:
        """Computes everything that is new."""
        done: list[QueryBatch] = []
        while (plan := plan_batch(self.store, self.inputs)).is_due:
            batch = advance(self.store, plan, runner=self.runner, run="bench")
            assert batch is not None
            done.append(batch)
        return done
