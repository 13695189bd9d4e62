"""A table of people on a server, which changes while orders arrive; what every order found, by a dictionary."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from tablestore import OTSClient

from upsert_platform.core.destination import OPERATION, SEQUENCE, BatchSpan, Destination
from upsert_platform.core.model import Table
from upsert_platform.core.types import arrow_type
from upsert_platform.sql.variables import Variables
from upsert_platform.sync.connectors import searchable, writable
from upsert_platform_tests.engine.world import Kept, World, plan_query
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.sql.reading import read_scripts
from upsert_platform_tests.task_rows import task_rows

ORDERS = "(SELECT *, PROCTIME() AS proc FROM orders) AS o"
VIEWS = "(SELECT *, PROCTIME() AS proc FROM views) AS v"
DIM = "dim FOR SYSTEM_TIME AS OF"

Dim = dict[int, tuple[str | None, int | None]]


@dataclass
class People:
    """A table `dim` on a server, and what it holds."""

    table: Table
    destination: Destination
    rng: random.Random
    rows: Dim = field(default_factory=dict)
    written: int = 0

    def change(self, count: int) -> None:
        """Writes and deletes some rows."""
        changes: dict[int, tuple[str | None, int | None] | None] = {}
        for _ in range(count):
            values = (self.rng.choice(["ann", "bob", None]), self.rng.choice([None, 1, 2, 3]))
            changes[self.rng.randrange(8)] = values if self.rng.random() > 0.3 else None
        self.put(changes)

    def put(self, changes: dict[int, tuple[str | None, int | None] | None]) -> None:
        """Writes rows; None deletes one."""
        names = ("id", "name", "grade")
        rows = [
            {**dict(zip(names, (key, *(values or (None, None))), strict=True)),
             OPERATION: "D" if values is None else "U", SEQUENCE: self.written + 1}
            for key, values in changes.items()
        ]  # fmt: skip
        fields = [pa.field(item.name, arrow_type(item.type)) for item in self.table.columns if item.type is not None]
        schema = pa.schema([*fields, pa.field(OPERATION, pa.string()), pa.field(SEQUENCE, pa.int64())])
        span = BatchSpan(self.written, self.written + 1, "changelog", "test")
        with self.destination.lease(owner="test", duration=timedelta(minutes=5)) as lease:
            changed = task_rows(pa.Table.from_pylist(rows, schema=schema))
            self.destination.write(changed, span=span, lease=lease)
        self.written += 1
        for key, values in changes.items():
            self.rows.pop(key, None)
            if values is not None:
                self.rows[key] = values


def people_by(options: dict[str, str]) -> People:
    """A new table, made by its options."""
    name = f"dim_{uuid.uuid4().hex[:10]}"
    given = {**options, "table.name": name, "control.table": f"control_{name}", "auto.create": "true"}
    with_clause = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    ddl = f"CREATE TABLE dim (id INT, name STRING, grade INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({with_clause});"
    scripts, problems = read_scripts({"dim.sql": ddl}, Variables({}, {}, {}))
    assert not problems
    table = scripts.tables["dim"]
    connector = writable()[table.connector]
    destination = connector.open(connector.checked(table))
    destination.prepare()
    return People(table, destination, random.Random(name))


def people_on_tablestore(server: TablestoreServer) -> People:
    """A new table of a Tablestore server."""
    return people_by(
        {
            "connector": "tablestore", "tablestore.endpoint": server.endpoint,
            "tablestore.instance.name": server.instance, "tablestore.access.key.id": server.access_key_id,
            "tablestore.access.key.secret": server.access_key_secret,
        }
    )  # fmt: skip


def drop_from_tablestore(server: TablestoreServer, people: People) -> None:
    """Removes the table, and what is known of its writers."""
    client = OTSClient(server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
    options = people.table.options
    for name in (options["table.name"], options["control.table"]):
        client.delete_table(name)


def kept_over(people: People, world: World, sql: str, *, name: str = "query") -> Kept:
    """A query that finds rows in the table."""
    reader, problems = searchable()[people.table.connector].key_reader(people.table)
    assert reader is not None, problems
    query = plan_query(sql, more={"dim": people.table})
    assert query.lookups == ("dim",)
    return Kept(world, query, name, lookups={"dim": reader})


@dataclass
class Arrived:
    """What every order found when it arrived: taken anew only for orders whose used columns differ."""

    used: Callable[[dict[str, Any]], tuple[Any, ...] | None]
    shown: dict[int, tuple[tuple[Any, ...], tuple[Any, ...] | None]] = field(default_factory=dict)

    def follow(self, orders: Sequence[dict[str, Any]], dim: Dim) -> None:
        """Takes the orders as they are now."""
        now = {row["oid"]: used for row in orders if (used := self.used(row)) is not None}
        self.shown = {oid: item for oid, item in self.shown.items() if now.get(oid) == item[0]}
        for oid, used in now.items():
            if oid not in self.shown:
                self.shown[oid] = (used, dim.get(used[0]))
