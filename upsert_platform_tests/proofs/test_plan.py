"""A plan shows the rows that an edited project changes, as DuckDB computes them, and writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform.proofs.plan import Kind, TablePlan, plan_project
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

SOURCE = """
CREATE TABLE orders (id BIGINT, name STRING, region STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
"""
TABLESTORE = """'connector' = 'tablestore', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'"""
TABLES = (
    """
CREATE TABLE copied (id BIGINT, label STRING, region STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'table.name' = '{table}_c', """
    + TABLESTORE
    + """);
INSERT INTO copied SELECT id, UPPER(name), region, amount FROM orders WHERE amount >= 0;
CREATE TABLE totals (region STRING, orders BIGINT, total BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'table.name' = '{table}_t', """
    + TABLESTORE
    + """);
INSERT INTO totals SELECT region, COUNT(*), CAST(SUM(amount) AS BIGINT) FROM orders GROUP BY region;
"""
)
COPIED = "SELECT id, UPPER(name) AS label, region, amount FROM orders WHERE amount >= 0"
TOTALS = "SELECT region, COUNT(*) AS orders, CAST(SUM(amount) AS BIGINT) AS total FROM orders GROUP BY region"


@dataclass(frozen=True)
class Change:
    """An edit of the project.

    Attributes:
        texts: of the project, each with what stands in its place.
        before, after: what DuckDB computes for the table: the columns that are compared, the key first; none where no
            row changes.
        declared: what the plan says of the declarations, in part.
    """

    texts: dict[str, str]
    declared: str
    table: str = "copied"
    kind: Kind = Kind.CHANGED
    before: str = ""
    after: str = ""
    rebuilds: bool = False
    reason: str = ""
    more: dict[str, str] = field(default_factory=dict)


LABELS = "SELECT id, UPPER(name) AS label, region, amount"
CHANGES = {
    "a column is added": Change(
        {"region STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'table.name'":
         "region STRING, amount INT, twice INT, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'table.name'",
         "region, amount FROM orders WHERE": "region, amount, amount * 2 FROM orders WHERE"},
        "column 'twice' INT is added",
        before=COPIED.replace("amount FROM", "amount, NULL AS twice FROM"),
        after=COPIED.replace("amount FROM", "amount, amount * 2 AS twice FROM"),
    ),
    "a column is removed": Change(
        {"label STRING, region STRING, amount INT": "label STRING, amount INT", "UPPER(name), region,": "UPPER(name),"},
        "column 'region' STRING is removed",
    ),
    "a column is renamed": Change(
        {"label STRING": "title STRING"},
        "column 'title' STRING is added",
        before="SELECT id, NULL AS title FROM orders WHERE amount >= 0",
        after="SELECT id, UPPER(name) AS title FROM orders WHERE amount >= 0",
    ),
    "the type of a column": Change(
        {"region STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'table.name'":
         "region STRING, amount STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'table.name'",
         "region, amount FROM orders WHERE": "region, CAST(amount AS STRING) FROM orders WHERE"},
        "column 'amount' is STRING, and was INT",
        before="", after="", reason="type", kind=Kind.REFUSED,
    ),
    "the filter": Change(
        {"WHERE amount >= 0": "WHERE amount > 50"}, "INSERT INTO copied", before=COPIED,
        after=COPIED.replace(">= 0", "> 50"),
    ),
    "an expression": Change(
        {"UPPER(name)": "LOWER(name)"}, "INSERT INTO copied", before=COPIED, after=COPIED.replace("UPPER", "LOWER")
    ),
    "the key": Change(
        {"amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'table.name'":
         "amount INT, PRIMARY KEY (id, region) NOT ENFORCED) WITH (\n  'table.name'"},
        "primary key (id, region), and was (id)", kind=Kind.REFUSED, reason="key",
    ),
    "the aggregate of a query": Change(
        {"SUM(amount)": "MAX(amount)"}, "INSERT INTO totals", table="totals", before=TOTALS,
        after=TOTALS.replace("SUM", "MAX"), rebuilds=True,
    ),
    "the format": Change(
        {"'value.format' = 'json'": "'value.format' = 'json', 'value.json.ignore-parse-errors' = 'true'"},
        "option 'value.json.ignore-parse-errors' is 'true', and was not declared",
    ),
    "an option of the table": Change(
        {"'table.name' = '{table}_c'": "'table.name' = '{table}_c', 'check.equals-source' = 'warn'"},
        "option 'check.equals-source' is 'warn', and was not declared",
    ),
    "a mask": Change(
        {"'table.name' = '{table}_c'": "'table.name' = '{table}_c', 'mask.columns' = 'label'"},
        "option 'mask.columns' is 'label', and was not declared",
    ),
    "the name of the table": Change(
        {"'{table}_c'": "'{table}_other'"}, "option 'table.name' is", kind=Kind.NEW, before=COPIED + " AND FALSE",
        after=COPIED,
    ),
}  # fmt: skip


def order(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"Order {number}", "region": f"r{number % 7}", "amount": number % 120 - 10}


def text(stack: Stack, change: Change | None = None) -> str:
    found = SOURCE + TABLES
    for right, other in change.texts.items() if change else ():
        assert right in found, right
        found = found.replace(right, other)
    return found.format(topic=stack.topic, table=stack.table)


def write(folder: Path, declared: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    (folder / "orders.sql").write_text(declared, "utf-8")
    return folder


def computed(orders: list[dict[str, Any]], *statements: str) -> list[dict[Any, dict[str, Any]]]:
    """The rows of statements by their first column, by DuckDB."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE orders (id BIGINT, name VARCHAR, region VARCHAR, amount INT)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [list(row.values()) for row in orders])
        found = []
        for sql in statements:
            names = [item[0] for item in database.execute(sql).description]
            found.append({row[0]: dict(zip(names, row, strict=True)) for row in database.fetchall()})
    return found


def changed_columns(change: Change, orders: list[dict[str, Any]]) -> dict[str, int]:
    """The columns that differ in rows of both sides, and in how many."""
    if not change.after:
        return {}
    before, after = computed(orders, change.before, change.after)
    pairs = [(before[key], after[key]) for key in before.keys() & after.keys()]
    counts = {name: sum(one[name] != other[name] for one, other in pairs) for name in next(iter(after.values()))}
    return {name: count for name, count in counts.items() if count}


def differences(change: Change, orders: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Rows added, changed and removed, by DuckDB."""
    if not change.after:
        return 0, 0, 0
    before, after = computed(orders, change.before, change.after)
    changed = sum(before[key] != after[key] for key in before.keys() & after.keys())
    return len(after.keys() - before.keys()), changed, len(before.keys() - after.keys())


def test_a_plan_has_the_rows_that_duckdb_computes(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = [order(number) for number in range(300)]
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for row in orders:
        producer.produce(stack.topic, key=json.dumps({"id": row["id"]}), value=json.dumps(row))
    assert producer.flush(20) == 0
    deployed = write(stack.project, text(stack))
    assert stack.run().success
    before, _ = load(deployed, root=str(stack.lake))

    def planned(folder: Path, **more: Any) -> dict[str, TablePlan]:
        binding = bind(*load(folder, root=str(stack.lake)))
        found = plan_project(spark, binding, Lake(str(stack.lake)), deployed=before, examples=1000, **more)
        return {plan.table: plan for plan in found.tables}

    same = planned(deployed)
    assert {(name, plan.kind, plan.declared) for name, plan in same.items()} == {
        ("copied", Kind.SAME, ()),
        ("totals", Kind.SAME, ()),
    }
    wrong = []
    for number, (name, change) in enumerate(CHANGES.items()):
        folder = write(stack.path / f"edited{number}", text(stack, change))
        plan = planned(folder, tables=[change.table])[change.table]
        wanted = (change.kind, differences(change, orders), change.rebuilds)
        found = (plan.kind, (plan.added, plan.changed, plan.removed), bool(plan.rebuilds))
        if plan.kind is not Kind.NEW and plan.columns != changed_columns(change, orders):
            wrong.append((name, changed_columns(change, orders), plan.columns))
        with monkeypatch.context() as patched:
            patched.setattr("upsert_platform.proofs.plan._ONE_IN", 1)  # a sample of all keys
            about = planned(folder, tables=[change.table], estimate=True)[change.table]
        if found != (about.kind, (about.added, about.changed, about.removed), bool(about.rebuilds)):
            wrong.append((name, found, "estimate", about))
        # Nothing of the table is read where its rows follow from both inserts.
        by_lake = change.table == "copied" and change.kind is Kind.CHANGED
        if ("compared on the lake" in about.reason) != by_lake:
            wrong.append((name, by_lake, about.reason))
        if about.columns != plan.columns:
            wrong.append((name, plan.columns, "estimate", about.columns))
        if wanted != found or change.declared not in "\n".join(plan.declared) or change.reason not in plan.reason:
            wrong.append((name, wanted, found, plan.declared, plan.reason))
        assert plan.rows is None or len(plan.rows.sample) == plan.changed + plan.removed + (
            plan.added if plan.kind is not Kind.NEW else 0
        )
    assert not wrong
    assert not list((stack.lake / "proofs").glob("*/*")), "a plan leaves its files"
    assert planned(deployed)["totals"].kind is Kind.SAME, "a plan has written something"

    events = text(stack).replace("amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (\n  'connector' = 'upsert-kafka'",
                                 "amount INT) WITH (\n  'connector' = 'kafka'")  # fmt: skip
    events = events.replace("'key.format' = 'json', 'value.format' = 'json'", "'format' = 'json'")
    refused = planned(write(stack.path / "events", events))["copied"]
    assert (refused.kind, "made in mode 'upsert'" in refused.reason) == (Kind.REFUSED, True), refused

    filtered = write(stack.path / "filtered", text(stack, CHANGES["the filter"]).replace("> 50", "< 0"))
    estimate = planned(filtered, tables=["copied"], estimate=True)["copied"]
    assert estimate.estimated
    assert 0 < estimate.removed + estimate.added < 3 * len(orders)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    arguments = ["plan", "--project", str(filtered), "--deployed", str(deployed)]
    ran = CliRunner().invoke(main, [*arguments, "--json"])
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["changes"]) == (2, True)
    copied = next(item for item in told["tables"] if item["table"] == "copied")
    negative = sum(row["amount"] < 0 for row in orders)
    assert (copied["added"], copied["removed"], copied["command"]) == (
        negative, len(orders) - negative, "upsert-platform reconcile copied",
    )  # fmt: skip
    assert (copied["cost"]["rows_written"], copied["cost"]["requests"]) == (len(orders), 2)
    ran = CliRunner().invoke(main, [*arguments, "--markdown"])
    assert ran.exit_code == 2
    assert f"| `copied` | changed | {negative} | 0 | {len(orders) - negative} |" in ran.stdout
    assert "| `totals` | same | 0 | 0 | 0 |  |" in ran.stdout
    assert "\n- INSERT INTO copied: INSERT INTO copied SELECT id, UPPER(name), region, amount FROM orders" in ran.stdout
    assert ran.stdout.count("\n| added | `id=") + ran.stdout.count("\n| removed | `id=") == 20
    ran = CliRunner().invoke(main, ["plan", "copied", "--project", str(deployed)])
    assert (ran.exit_code, "copied: same; 0 rows added" in ran.output) == (0, True), ran.output
    ran = CliRunner().invoke(main, ["plan", "nothing", "--project", str(deployed)])
    assert (ran.exit_code, "no insert writes table 'nothing'" in ran.output) == (1, True), ran.output


WAREHOUSE = """
CREATE TABLE warehouse (id BIGINT, name STRING{more}, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}_w', 'sink.operation' = 'upsert', 'auto.create' = 'true',
  'upsert.write.bucket.num' = '2', 'commit.min-interval' = '0 s', 'schema.change.behavior' = '{behavior}',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}'
);
INSERT INTO warehouse SELECT id, name{select} FROM orders;
"""


def test_columns_that_a_sync_adds_are_planned(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number in range(20):
        row = {**order(number), "amount": number if number % 4 else None}
        producer.produce(stack.topic, key=json.dumps({"id": number}), value=json.dumps(row))
    assert producer.flush(20) == 0

    def project(behavior: str, more: str = "", select: str = "") -> Path:
        text = (SOURCE + WAREHOUSE).format(
            topic=stack.topic, table=stack.table, behavior=behavior, more=more, select=select
        )
        return write(stack.project, text)

    def planned(folder: Path, **more: Any) -> TablePlan:
        binding = bind(*load(folder, root=str(stack.lake)))
        return plan_project(spark, binding, Lake(str(stack.lake)), **more).tables[0]

    project("evolve")
    assert stack.run().success
    plan = planned(project("exception", ", amount INT", ", amount"))
    assert (plan.kind, "'amount' INT is missing" in plan.reason) == (Kind.REFUSED, True), plan
    edited = project("evolve", ", amount INT", ", amount")
    plan = planned(edited)
    assert (plan.kind, plan.added, plan.removed, plan.changed) == (Kind.CHANGED, 0, 0, 15), plan
    assert plan.columns == {"amount": 15}
    estimate = planned(edited, estimate=True)
    assert (estimate.kind in (Kind.CHANGED, Kind.SAME), estimate.added, estimate.removed) == (True, 0, 0), estimate
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    ran = CliRunner().invoke(main, ["reconcile", "warehouse", "--project", str(edited)])
    assert ran.exit_code == 0, ran.output
    assert planned(edited).kind is Kind.SAME
