"""An asset of one's own, as docs/declaring.md shows it: it reads a changelog, and writes a table."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_replay import send
from upsert_platform_tests.referee.judging import tablestore_table

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
