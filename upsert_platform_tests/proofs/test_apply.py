"""`apply` carries out exactly a plan, also after a kill, and refuses where the world moved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.cli.main import main
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.proofs import apply as applying
from upsert_platform.proofs.plan import plan_project
from upsert_platform.proofs.plan_file import PlanFile, plan_data, plan_of
from upsert_platform.sync.binding import Binding, bind, load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_plan import COPIED, TABLESTORE, TOTALS, computed, order, text, write
from upsert_platform_tests.referee.judging import tablestore_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

MORE = (
    """
CREATE TABLE added (id BIGINT, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'table.name' = '{table}_n', """
    + TABLESTORE
    + """);
INSERT INTO added SELECT id, region FROM orders WHERE region = 'r1';
CREATE TABLE counted (name STRING, orders BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'table.name' = '{table}_q', """
    + TABLESTORE
    + """);
INSERT INTO counted SELECT name, COUNT(*) FROM orders GROUP BY name;
"""
)
NEW_COPIED = COPIED.replace(">= 0", "> 50")
NEW_TOTALS = TOTALS.replace("SUM(amount)", "MAX(amount)")
ADDED = "SELECT id, region FROM orders WHERE region = 'r1'"
COUNTED = "SELECT name, COUNT(*) AS orders FROM orders GROUP BY name"
TABLES = {
    "c": ({"id": "BIGINT", "label": "STRING", "region": "STRING", "amount": "INT"}, NEW_COPIED),
    "t": ({"region": "STRING", "orders": "BIGINT", "total": "BIGINT"}, NEW_TOTALS),
    "n": ({"id": "BIGINT", "region": "STRING"}, ADDED),
    "q": ({"name": "STRING", "orders": "BIGINT"}, COUNTED),
}


class Edited:
    """A project that is deployed, and its edit: a filter, the statement of a query, two new tables."""

    def __init__(self, stack: Stack, spark: SparkSession) -> None:
        self.stack, self.spark = stack, spark
        self.orders = [order(number) for number in range(300)]
        self.send(self.orders)
        self.deployed = write(stack.project, text(stack))
        assert stack.run().success
        changed = text(stack).replace("WHERE amount >= 0", "WHERE amount > 50").replace("SUM(amount)", "MAX(amount)")
        assert changed.count("MAX") == 1
        assert changed.count("> 50") == 1
        self.folder = write(stack.path / "edited", changed + MORE.format(table=stack.table))

    def send(self, orders: Sequence[dict[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
        for row in orders:
            producer.produce(self.stack.topic, key=json.dumps({"id": row["id"]}), value=json.dumps(row))
        assert producer.flush(20) == 0

    @property
    def lake(self) -> Lake:
        return Lake(str(self.stack.lake))

    def binding(self, folder: Path | None = None) -> Binding:
        return bind(*load(folder or self.folder, root=str(self.stack.lake)))

    def plan(self) -> PlanFile:
        return plan_of(json.loads(json.dumps(plan_data(plan_project(self.spark, self.binding(), self.lake)))))

    def apply(self, plan: PlanFile) -> dict[str, applying.Applied]:
        return {item.table: item for item in applying.apply(self.spark, plan, self.binding(), self.lake)}

    def rows(self, suffix: str) -> list[tuple[Any, ...]]:
        columns = TABLES[suffix][0]
        return sorted(
            map(
                tuple,
                tablestore_table(self.stack.variables, f"{self.stack.table}_{suffix}", columns, [next(iter(columns))]),
            )
        )

    def expected(self, statement: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in computed(self.orders, statement)[0].values())

    def check(self) -> None:
        for suffix, (_, statement) in TABLES.items():
            assert self.rows(suffix) == self.expected(statement), suffix


@pytest.fixture
def edited(stack: Stack, spark: SparkSession) -> Iterator[Edited]:
    return Edited(stack, spark)


def results(edited: Edited) -> list[dict[str, int]]:
    """The totals of each version of the query's table in the lake, as any reader of Delta Lake sees them."""
    from deltalake import DeltaTable

    query = next(name for name in edited.binding(edited.deployed).queries if name.startswith("totals"))
    uri = edited.lake.query(query).uri
    found = []
    for version in range(DeltaTable(uri).version() + 1):
        table = DeltaTable(uri, version=version).to_pyarrow_table().to_pylist()
        kinds = [row for row in table if row["_kind"] in ("+U", "-D", "+I")]
        last: dict[str, Any] = {}
        for row in sorted(kinds, key=lambda row: row["_batch"]):
            last[row["region"]] = row
        found.append({region: row["total"] for region, row in last.items() if row["_kind"] != "-D"})
    return found


def test_a_plan_is_carried_out_exactly_and_once(edited: Edited) -> None:
    plan = edited.plan()
    planned = {item.table: item for item in plan.tables}
    assert planned["totals"].rebuilds
    done = edited.apply(plan)
    edited.check()
    for name in ("copied", "totals"):
        counts, item = done[name], planned[name]
        assert item.added is not None and item.changed is not None and item.removed is not None
        assert (counts.put, counts.deleted, counts.equal) == (item.added + item.changed, item.removed, True)
    assert (done["added"].put, done["counted"].put) == (planned["added"].added, planned["counted"].added)

    old, new = ({row[0]: row[2] for row in edited.expected(sql)} for sql in (TOTALS, NEW_TOTALS))
    versions = [found for found in results(edited) if found]
    assert {tuple(sorted(found.items())) for found in versions} == {
        tuple(sorted(old.items())), tuple(sorted(new.items())),
    }  # fmt: skip

    # The same plan again finds it done, and writes nothing.
    again = edited.apply(plan)
    assert not any(item.put or item.deleted for item in again.values())
    edited.check()
    # And a sync goes on from there.
    edited.orders += [order(number) for number in range(300, 340)]
    edited.send(edited.orders[300:])
    write(edited.stack.project, (edited.folder / "orders.sql").read_text("utf-8"))
    assert edited.stack.run().success
    edited.check()


@pytest.mark.soak
@pytest.mark.parametrize("place", ["before the rows are written", "behind the first table"])
def test_an_apply_that_was_killed_goes_on(edited: Edited, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    plan, calls = edited.plan(), 0
    real = applying.reconcile

    def killed(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if place.startswith("before") or calls > 1:
            raise KeyboardInterrupt
        return real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(applying, "reconcile", killed)
        with pytest.raises(KeyboardInterrupt):
            edited.apply(plan)
    assert results(edited)[-1] == {row[0]: row[2] for row in edited.expected(NEW_TOTALS)}, "the query was not switched"
    assert edited.rows("t") == edited.expected(TOTALS)
    done = edited.apply(plan)
    assert done["copied"].equal
    assert done["totals"].equal
    edited.check()


def test_a_world_that_moved_is_refused(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(edited.stack.lake))
    file = edited.stack.path / "plan.json"
    printed = CliRunner().invoke(main, ["plan", "--project", str(edited.folder), "--json"])
    assert printed.exit_code == 2
    file.write_text(printed.stdout, "utf-8")

    def refused(data: object = None, folder: Path | None = None) -> str:
        if data is not None:
            file.write_text(json.dumps(data), "utf-8")
        ran = CliRunner().invoke(main, ["apply", str(file), "--project", str(folder or edited.folder)])
        file.write_text(printed.stdout, "utf-8")
        assert ran.exit_code == 1, ran.output
        return ran.output

    data = json.loads(printed.stdout)
    assert "the plan was edited after it was made" in refused({**data, "changes": False})
    assert "the file is no plan" in refused({"tables": 1})
    other = write(
        edited.stack.path / "other", (edited.folder / "orders.sql").read_text("utf-8").replace("> 50", "> 51")
    )
    assert "the declarations behind table 'copied' are others" in refused(folder=other)
    assert "no insert writes table 'added' any more" in refused(folder=edited.deployed)
    estimate = CliRunner().invoke(main, ["plan", "--project", str(edited.folder), "--json", "--estimate"])
    assert "the plan is an estimate" in refused(json.loads(estimate.stdout))

    # Another program wrote a row of the table: more would be written than the plan says.
    plan = plan_of(data)
    writes = applying.reconcile

    def after_another(spark: Any, hop: Any, **more: Any) -> Any:
        check = more["check"]

        def seen(found: Any) -> None:
            check(type(found)(**{**vars(found), "stale": found.stale + 1}))

        return writes(spark, hop, **{**more, "check": seen})

    with monkeypatch.context() as patched:
        patched.setattr(applying, "reconcile", after_another)
        with pytest.raises(DestinationError, match="another program has written the table since"):
            edited.apply(plan)
    assert edited.rows("c") == edited.expected(COPIED)

    edited.send([order(900)])
    assert edited.stack.run("sync").success is False, "the deployed query is another by now"
    with pytest.raises(UpsertPlatformError, match="'orders' of the lake was at batch 1 of commit"):
        edited.apply(plan)
    assert edited.rows("c") == [*edited.expected(COPIED), (900, "ORDER 900", "r4", 50)]

    # Without a file the plan is made anew, shown and asked for.
    edited.orders.append(order(900))
    ran = CliRunner().invoke(main, ["apply", "--project", str(edited.folder)], input="n\n")
    assert (ran.exit_code, "copied: changed" in ran.output) == (1, True), ran.output
    ran = CliRunner().invoke(main, ["apply", "--project", str(edited.folder), "--yes", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["equal"] is True
    # The query was switched before; what its table has not applied of it is left to a sync, and the plan says so.
    reasons = {item.table: item.reason for item in plan_project(edited.spark, edited.binding(), edited.lake).tables}
    assert "the next sync writes the others" in reasons["totals"]
    assert not reasons["copied"]
    write(edited.stack.project, (edited.folder / "orders.sql").read_text("utf-8"))
    assert edited.stack.run().success
    edited.check()
    ran = CliRunner().invoke(main, ["apply", "--project", str(edited.folder), "--yes"])
    assert (ran.exit_code, "nothing to apply" in ran.output) == (0, True), ran.output


def test_rows_that_the_edited_insert_cannot_compute_stay_and_are_set_aside(edited: Edited) -> None:
    """As a sync of the same statement would: neither written as null nor deleted."""
    mend = [number for number in range(300) if number % 3]
    edited.orders += [{**order(number), "name": str(number)} for number in mend]
    edited.send(edited.orders[300:])
    assert edited.stack.run().success
    before = {row[0]: row for row in edited.rows("c")}
    folder = write(
        edited.stack.path / "failing",
        text(edited.stack).replace("region, amount FROM", "region, CAST(name AS INT) FROM"),
    )
    binding = edited.binding(folder)
    planned = plan_project(edited.spark, binding, edited.lake)
    (copied,) = [item for item in planned.tables if item.table == "copied"]
    failing = [number for number in before if number not in mend]
    assert len(failing) > 50
    assert f"{len(failing)} rows set aside, or that cannot be computed, are not compared" in copied.reason
    plan = plan_of(json.loads(json.dumps(plan_data(planned))))
    applying.apply(edited.spark, plan, binding, edited.lake)
    after = {row[0]: row for row in edited.rows("c")}
    assert after == {key: row if key in failing else (*row[:3], key) for key, row in before.items()}
    kept = RefusedStore(edited.lake.refused("copied"))
    assert kept.count() == len(failing)
    assert {json.loads(text)["id"] for text in kept.keys()["key"].to_pylist()} == set(failing)
