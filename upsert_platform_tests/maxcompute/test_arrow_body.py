"""A body that ends early is an error, also where a batch ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.fault_proxy import Fault, FaultProxy, fault_proxy
from upsert_platform_tests.maxcompute.sending import batch, open_job, send

ROWS = 40_000
LAST_MARKER_VALUE = 0xFFFFFFFF
"""As a BIGINT at the end of a batch this has the bytes of the end marker."""


@pytest.fixture
def proxy(maxcompute: ServerHandle) -> Iterator[FaultProxy]:
    with fault_proxy(maxcompute) as opened:
        yield opened


def first_batch_end(body: bytes) -> int:
    """Where the first batch of an Arrow stream ends."""
    source = pa.BufferReader(body)
    pa.ipc.open_stream(source).read_next_batch()
    return int(source.tell())


@pytest.mark.parametrize(
    "cut",
    [first_batch_end, lambda body: len(body) - 8, lambda body: first_batch_end(body) + 100, lambda _: 0],
    ids=["after a batch", "before the end marker", "inside of a batch", "empty"],
)
def test_a_body_that_ends_early_is_an_error(
    make_table: Callable[..., MaxComputeTable], proxy: FaultProxy, cut: Callable[[bytes], int]
) -> None:
    table = make_table({"id": "BIGINT"}, key=(), odps_tunnel_end_point=proxy.endpoint)
    job, storage, _ = open_job(table)
    send(job, [batch(table, [("U", (LAST_MARKER_VALUE,)) for _ in range(ROWS)])])
    storage.commit(job.session, [("0", 1)])
    with closing(storage):
        session = storage.create_read_session(["id"])
        assert session.splits == 1
        whole = sum(rows.num_rows for rows in storage.read_split(session, 0))
        assert whole == ROWS
        proxy.faults.append(Fault("TableRead", cut=cut))
        with pytest.raises(ServiceError, match=r"(ended|broke off) after"):
            list(storage.read_split(session, 0))


def test_a_result_of_which_not_all_rows_come_is_an_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    result = client.open_query("SELECT * FROM VALUES (1), (2), (3) AS t(a)")
    download = client._download
    # The tunnel's reader ends quietly where its answer does.
    monkeypatch.setattr(client, "_download", lambda instance: _Short(download(instance)))
    with pytest.raises(ServiceError, match=r"rows 0 to 3 of the result .*: 2 came"):
        list(client.read_query(result, 0))


class _Short:
    """A download whose answer ends one row early."""

    def __init__(self, session: object) -> None:
        self._session = session

    def open_arrow_reader(self, start: int, count: int) -> object:
        return self._session.open_arrow_reader(start, count - 1)  # type: ignore[attr-defined]
