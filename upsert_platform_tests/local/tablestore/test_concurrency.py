"""Many clients at once: a lease by conditional update has one holder, no increment is lost."""

from __future__ import annotations

import threading
from typing import Any

from tablestore import ComparatorType, Condition, OTSServiceError, Row, SingleColumnCondition

from upsert_platform_tests.local.tablestore.conftest import connect
from upsert_platform_tests.local.tablestore.server import ServerHandle

KEY = [("k", "lease")]


def in_threads(count: int, body: Any) -> None:
    threads = [threading.Thread(target=body, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_lease_has_one_holder(server: ServerHandle, client: Any, table: str) -> None:
    client.put_row(table, Row(KEY, [("epoch", 0), ("holder", "")]))
    won: list[tuple[int, int]] = []

    def contend(number: int) -> None:
        own = connect(server)
        for epoch in range(20):
            unchanged = SingleColumnCondition("epoch", epoch, ComparatorType.EQUAL, False)
            update = Row(KEY, {"put": [("epoch", epoch + 1), ("holder", f"{number}")]})
            try:
                own.update_row(table, update, Condition("EXPECT_EXIST", unchanged))
                won.append((epoch, number))
            except OTSServiceError as error:
                assert error.code == "OTSConditionCheckFail"

    in_threads(4, contend)
    epochs = [epoch for epoch, _ in won]
    assert sorted(epochs) == sorted(set(epochs)), "an epoch was won twice"
    reached = {name: value for name, value, _ in client.get_row(table, KEY, max_version=1)[1].attribute_columns}
    assert reached == {"epoch": len(won), "holder": f"{max(won)[1]}"}


def test_no_increment_is_lost(server: ServerHandle, client: Any, table: str) -> None:
    def add(_: int) -> None:
        own = connect(server)
        for _ in range(25):
            own.update_row(table, Row(KEY, {"increment": [("n", 1)]}), Condition("IGNORE"))

    in_threads(4, add)
    assert client.get_row(table, KEY, max_version=1)[1].attribute_columns[0][1] == 100
