"""`upsert_platform.testing` on real servers: the same calls, answered by a broker and a Tablestore server."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from upsert_platform import testing
from upsert_platform.declarations.starter import write_starter

pytestmark = pytest.mark.systems


def test_the_starter_project_on_servers_of_its_own(tmp_path: Path) -> None:
    write_starter(tmp_path)
    with testing.project(tmp_path, servers="local") as shop:
        shop.send("orders", [{"order_id": n, "amount": Decimal("1.50"), "state": "open"} for n in (1, 2)])
        shop.delete("orders", [{"order_id": 2}])
        shop.send_record("orders", key=b"x", value=b"y")
        outcome = shop.sync()
        assert outcome.checks["tables/open_orders:last_value_per_key"]
        assert not outcome.checks["changelogs/orders:quarantine_below"]
        assert [(row["order_id"], row["amount"]) for row in shop.rows("open_orders")] == [(1, Decimal("1.50"))]
