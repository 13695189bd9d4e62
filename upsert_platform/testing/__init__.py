"""Tests of a project without brokers, clouds and secrets: rows in, a run, rows out.

from upsert_platform import testing

def test_closed_orders_leave() -> None:
    with testing.project("shop") as shop:
        shop.send("orders", [{"order_id": 1, "state": "open"}, {"order_id": 2, "state": "closed"}])
        shop.sync()
        assert [row["order_id"] for row in shop.rows("open_orders")] == [1]
"""

from upsert_platform.testing.harness import Outcome, ProjectUnderTest, project

__all__ = ["Outcome", "ProjectUnderTest", "project"]
