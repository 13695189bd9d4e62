"""Upsert sessions of many partitions: few statements, and none left open by a run that fails (sections 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server
from upsert_platform_tests.maxcompute.fault_proxy import Fault, FaultProxy, fault_proxy
from upsert_platform_tests.maxcompute.frames import frame, span, stored, write
from upsert_platform_tests.soak.partition_kills import open_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Make = Callable[..., MaxComputeTable]
COLUMNS = {"id": "BIGINT", "ds": "STRING"}
PARTITIONS = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """A server of its own, whose open sessions are counted."""
    with maxcompute_server(tmp_path_factory.mktemp("sending")) as started:
        yield started


@pytest.fixture
def proxy(server: ServerHandle) -> Iterator[FaultProxy]:
    with fault_proxy(server) as opened:
        yield opened


def partitioned(make_table: Make, server: ServerHandle, proxy: FaultProxy, **options: str) -> MaxComputeTable:
    table = make_table(
        COLUMNS, key=["id", "ds"], partitioned_by=["ds"], server=server, **{"write_api": "tunnel", **options}
    )
    return replace(
        table,
        settings=table.settings.model_copy(update={"endpoint": proxy.endpoint, "tunnel_endpoint": proxy.endpoint}),
    )


def rows_of(count: int, first: int = 0) -> list[tuple[str, tuple[object, ...]]]:
    return [("U", (number, f"d{number}")) for number in range(first, first + count)]


@pytest.mark.parametrize("api", ["tunnel", "maxstorage"])
def test_a_batch_into_many_partitions_costs_no_statement_per_partition(
    spark: SparkSession, make_table: Make, server: ServerHandle, proxy: FaultProxy, api: str
) -> None:
    table = partitioned(make_table, server, proxy, write_api=api)
    counts = []
    with closing(MaxComputeDestination(table)) as destination:
        destination.prepare()
        for number, rows in enumerate((rows_of(1), rows_of(1), rows_of(PARTITIONS), rows_of(PARTITIONS)), 1):
            server.journal(clear=True)
            write(spark, destination, number, rows)
            counts.append(len(server.journal("instance.create")))
        assert len(stored(server, table)) == PARTITIONS
    assert counts[1] == counts[3]
    # What is missing is added in one statement, beside which the open sessions are recorded once more.
    assert counts[2] <= counts[3] + 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST instances", status=0),
        Fault("POST instances", status=400, code="ODPS-0110999"),
        Fault("POST upserts", status=403, code="NoPermission"),
    ],
    ids=["dropped at ADD PARTITION", "refused at ADD PARTITION", "refused for one partition"],
)
def test_no_session_is_left_open_where_opening_fails(
    spark: SparkSession, make_table: Make, server: ServerHandle, proxy: FaultProxy, fault: Fault
) -> None:
    table = partitioned(make_table, server, proxy, upsert_writer_max__retries="0")
    with closing(MaxComputeDestination(table)) as destination:
        destination.prepare()
        write(spark, destination, 1, rows_of(3))
        before = open_sessions(server)
        with destination.lease(owner="test", duration=timedelta(minutes=5)) as lease:
            if fault.action == "POST instances":
                fail_after_record(lease, proxy, fault)
            else:
                proxy.faults.append(replace(fault))
            changes = frame(spark, table, rows_of(5))
            with pytest.raises((DestinationError, EndpointError)):
                destination.write(changes, span=span(2), lease=lease)
        assert open_sessions(server) == before
        assert destination._control.read().pending == ""
        assert destination.state().applied_batch == 1


def fail_after_record(lease: ControlLease, proxy: FaultProxy, fault: Fault) -> None:
    """Spoils the first statement after the open sessions were recorded, which is the one that adds partitions."""
    change = lease.change

    def changed(**values: int | str) -> object:
        found = change(**values)
        if values.get("pending"):
            proxy.faults.append(replace(fault))
        return found

    lease.change = changed  # type: ignore[method-assign,assignment]


def test_sessions_are_recorded_before_partitions_are_added(
    spark: SparkSession, make_table: Make, server: ServerHandle, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(make_table, server, proxy)
    seen: list[int] = []
    with closing(MaxComputeDestination(table)) as destination:
        destination.prepare()
        write(spark, destination, 1, rows_of(3))
        run = destination._client.run_sql

        def watched(statement: str, **options: object) -> str:
            if "ADD IF NOT EXISTS" in statement:
                pending = destination._control.read().pending_commit
                seen.append(len(pending.sessions) if pending else 0)
            return run(statement, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(destination._client, "run_sql", watched)
        write(spark, destination, 2, rows_of(5))
    assert seen == [3]
    assert len(stored(server, table)) == 5
