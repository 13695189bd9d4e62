"""Assets of one's own, as docs/declaring.md shows them: they read changelogs, also as of a batch, and write a table."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_replay import send
from upsert_platform_tests.referee.judging import tablestore_table

pytestmark = pytest.mark.whole_runs

PAGE = Path(__file__).parents[2] / "docs" / "declaring.md"
DEFINITIONS = "upsert_platform.definitions"
TABLES = """
CREATE TABLE orders (order_id BIGINT, customer STRING, amount DECIMAL(10, 2), PRIMARY KEY (order_id) NOT ENFORCED)
WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE customer_totals (customer STRING, total DECIMAL(20, 2), PRIMARY KEY (customer) NOT ENFORCED) WITH (
  {tablestore}, 'table.name' = '{table}'
);
CREATE TABLE orders_copy (order_id BIGINT, customer STRING, amount DECIMAL(10, 2), PRIMARY KEY (order_id) NOT ENFORCED)
WITH ({tablestore}, 'table.name' = '{table}_copy');
INSERT INTO orders_copy SELECT * FROM orders;
CREATE TABLE counted (customer STRING, n BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
WITH ({tablestore}, 'table.name' = '{table}_counted');
INSERT INTO counted SELECT customer, COUNT(*) FROM orders GROUP BY customer;
"""
TABLESTORE = """'connector' = 'tablestore', 'auto.create' = 'true',
  'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}'"""


@pytest.mark.usefixtures("spark")
def test_the_asset_of_the_page_reads_last_values_and_writes_its_table(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TABLES.format(topic=stack.topic, table=stack.table, tablestore=TABLESTORE)
    (stack.project / "users.sql").write_text(text, "utf-8")
    send(
        stack,
        (b'{"order_id":1}', b'{"order_id":1,"customer":"ann","amount":"9.90"}'),
        (b'{"order_id":2}', b'{"order_id":2,"customer":"ann","amount":"1.00"}'),
        (b'{"order_id":3}', b'{"order_id":3,"customer":"bob","amount":"5.00"}'),
        (b'{"order_id":1}', b'{"order_id":1,"customer":"ann","amount":"2.50"}'),
        (b'{"order_id":3}', None),
    )
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = (text for text in blocks if "def customer_totals(" in text)
    found: dict[str, Any] = {}
    sys.modules.pop(DEFINITIONS, None)  # of another project
    try:
        exec(block, found)
    finally:
        sys.modules.pop(DEFINITIONS, None)
    job = found["defs"].resolve_implicit_global_asset_job_def()
    wanted = [dg.AssetKey(["changelogs", "orders"]), found["customer_totals"].key]
    assert job.execute_in_process(asset_selection=wanted, raise_on_error=False).success
    rows = tablestore_table(
        stack.variables, stack.table, {"customer": "STRING", "total": "DECIMAL(20, 2)"}, ("customer",)
    )
    assert [(customer, Decimal(str(total))) for customer, total in rows] == [("ann", Decimal("3.50"))]


@pytest.mark.usefixtures("spark")
def test_inputs_are_read_as_of_what_their_metadata_or_the_run_says(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TABLES.format(topic=stack.topic, table=stack.table, tablestore=TABLESTORE)
    (stack.project / "users.sql").write_text(text, "utf-8")

    def order(number: int, customer: str) -> tuple[bytes, bytes]:
        value = {"order_id": number, "customer": customer, "amount": "1.00"}
        return json.dumps({"order_id": number}).encode(), json.dumps(value).encode()

    send(stack, order(1, "ann"), order(2, "bob"))
    assert stack.run().success
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    send(stack, order(2, "ann"), order(3, "ann"), (b'{"order_id":1}', None))
    assert stack.run().success
    seen: dict[str, Any] = {}

    def own(name: str, key: list[str], stated: str | None) -> dg.AssetsDefinition:
        metadata = {} if stated is None else {"upsert/as_of": stated}

        manager = "changelog_io" if name in ("now", "as_first") else None

        @dg.asset(name=name, ins={"rows": dg.AssetIn(key=key, metadata=metadata, input_manager_key=manager)})
        def asset(rows: Any) -> None:
            seen[name] = sorted(tuple(row) for row in rows.select(rows.columns[0], rows.columns[1]).collect())

        return asset

    assets = [
        own("now", ["changelogs", "orders"], None),
        own("as_first", ["changelogs", "orders"], "1"),
        own("as_then", ["changelogs", "orders"], between),
        own("counts", ["queries", "counted"], "1"),
        own("written", ["tables", "orders_copy"], None),
        own("wrongly_written", ["tables", "orders_copy"], "1"),
        own("too_late", ["changelogs", "orders"], "7"),
        own("nonsense", ["changelogs", "orders"], "yesterday"),
    ]
    job = dg.Definitions.merge(
        stack.definitions(), dg.Definitions(assets=assets)
    ).resolve_implicit_global_asset_job_def()

    def ran(*names: str, **inputs: str) -> dg.ExecuteInProcessResult:
        config = {"ops": {name: {"inputs": {"rows": {"as_of": stated}}} for name, stated in inputs.items()}}
        return job.execute_in_process(
            asset_selection=[dg.AssetKey(name) for name in names], run_config=config, raise_on_error=False
        )

    first, last = [(1, "ann"), (2, "bob")], [(2, "ann"), (3, "ann")]
    assert ran("now", "as_first", "as_then", "counts", "written").success
    assert seen == {
        "now": last, "as_first": first, "as_then": first, "counts": [("ann", 1), ("bob", 1)], "written": last,
    }  # fmt: skip
    assert ran("now", "as_first", now="1", as_first="2").success
    assert (seen["now"], seen["as_first"]) == (first, last), "the run says more than the declaration"
    for name, words in {
        "wrongly_written": "table 'orders_copy': its system keeps no earlier rows",
        "too_late": "'orders' has no rows as of batch 7: its history begins with batch 1 and ends with batch 2",
        "nonsense": "'yesterday' is no end of a topic",
    }.items():
        failed = ran(name)
        assert not failed.success
        told = str(failed.failure_data_for_node(name).error)
        assert words in told, told
