"""Sessions under requests that come at the same time: committed once, and what was answered with 200 is there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from odps.errors import ODPSError
from odps.maxstorage import MaxStorageClient

Rows = Callable[..., list[tuple[Any, ...]]]
AT_ONCE = 8
DELTA = {"transactional": True, "primary_key": "k", "table_properties": {"write.bucket.num": "1"}}


def at_once(requests: list[Callable[[], Any]]) -> list[Any]:
    """The answers of requests that are made at the same time, or their status when they are refused."""
    gate = threading.Barrier(len(requests))

    def run(request: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return request()
        except ODPSError as error:
            return error.status_code

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(run, requests))


def upload_session(tunnel: Any, name: str) -> Any:
    session = tunnel.create_upload_session(name)
    with session.open_record_writer(0) as writer:
        for number in range(100):
            writer.write(session.new_record([number]))
    return session


def committer(session: Any, parameter: str) -> Callable[[], Any]:
    """A request that commits a session of the tunnel, without the client's own checks."""
    url = session._get_resource() if hasattr(session, "_get_resource") else session._table.table_resource()
    return lambda: (
        session._client.post(url, params={parameter: session.id}, headers={"Content-Length": "0"}).status_code
    )


def test_an_upload_that_is_committed_many_times_at_once_has_its_rows_once(
    odps: Any, tunnel: Any, name: str, rows: Rows
) -> None:
    odps.create_table(name, "k bigint")
    session = upload_session(tunnel, name)
    assert at_once([committer(session, "uploadid")] * AT_ONCE) == [200] * AT_ONCE
    assert rows(f"select count(*) from {name}") == [(100,)]
    assert odps.get_table(name).table_schema is not None
    assert len(odps.execute_sql(f"show history for table {name}").get_task_results().popitem()[1].splitlines()) == 3


def test_an_upsert_session_that_is_committed_many_times_at_once_is_committed_once(
    odps: Any, tunnel: Any, name: str, rows: Rows
) -> None:
    odps.create_table(name, "k bigint not null, v string", **DELTA)
    session = tunnel.create_upsert_session(name)
    with session.open_upsert_stream() as stream:
        stream.upsert(session.new_record([1, "a"]))
    assert at_once([committer(session, "upsertid")] * AT_ONCE) == [200] * AT_ONCE
    assert rows(f"select * from {name}") == [(1, "a")]
    assert odps.get_table(name).reserved["cdc_latest_version"] == "2"


def test_a_storage_session_that_is_committed_many_times_at_once_is_committed_once(
    odps: Any, name: str, rows: Rows
) -> None:
    odps.create_table(name, "k bigint")
    client = MaxStorageClient(odps)
    session = client.create_table_write_session(name)
    writer = session.open_arrow_writer(stream_id="0", stream_version=1)
    writer.write_batch(pa.table({"k": list(range(100))}))
    writer.close()
    stub, table = session._stub, session._table_id
    request = lambda: stub.commit_table_write_session(table, session._session_id, ["0"], [1], None)  # noqa: E731
    assert at_once([request] * AT_ONCE) == [None] * AT_ONCE
    assert rows(f"select count(*) from {name}") == [(100,)]


def test_what_is_written_beside_a_commit_is_there_or_refused(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint")
    outcomes = Counter[int]()
    for attempt in range(10):
        session = tunnel.create_upload_session(name)
        url = committer(session, "uploadid")

        def put(block: int, session: Any = session, attempt: int = attempt) -> int:
            with session.open_record_writer(block) as writer:
                writer.write(session.new_record([attempt * 100 + block]))
            return block

        answers = at_once([*(lambda block=block: put(block) for block in range(AT_ONCE)), url])  # type: ignore[misc]
        written = {attempt * 100 + block for block, answer in enumerate(answers[:-1]) if answer == block}
        found = {row[0] for row in rows(f"select k from {name} where k >= {attempt * 100}")}
        assert answers[-1] == 200
        # A block whose answer was lost on the way may be there too; none is.
        assert found == written
        outcomes.update("written" if answer == block else "refused" for block, answer in enumerate(answers[:-1]))
    assert sum(outcomes.values()) == 10 * AT_ONCE


@pytest.mark.parametrize("action", ["commit", "abort"])
def test_an_abort_beside_commits_wins_or_loses_as_a_whole(
    odps: Any, tunnel: Any, name: str, rows: Rows, action: str
) -> None:
    odps.create_table(name, "k bigint not null, v string", **DELTA)
    for number in range(5):
        session = tunnel.create_upsert_session(name)
        with session.open_upsert_stream() as stream:
            stream.upsert(session.new_record([number, "a"]))
        commit, abort = committer(session, "upsertid"), session.abort
        order = [commit, abort] if action == "commit" else [abort, commit]
        answers = at_once(order)
        session.reload()
        found = rows(f"select k from {name} where k = {number}")
        assert (session.status.value.lower(), len(found)) in (("committed", 1), ("aborted", 0)), answers
