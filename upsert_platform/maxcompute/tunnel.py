"""The upsert tunnel: sessions of one partition each, bodies of one bucket each.

A session is addressed by its id alone, so tasks send into sessions that the driver opened. Requests are made here
rather than by PyODPS' upsert stream, which loses rows at an answer 308, sends a body per row after 64 MiB, and sends a
broken body again after its retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from upsert_platform.maxcompute.connection import (
    Connection,
    ServiceError,
    backoff_seconds,
    guarded_rest,
    may_pass,
    with_retries,
)
from upsert_platform.maxcompute.names import TableName

T = TypeVar("T")
_HEADERS = {
    "odps-tunnel-date-transform": "v1",
    "odps-tunnel-sdk-support-schema-evolution": "true",
    "x-odps-tunnel-version": "6",
}
_LIFECYCLE_HOURS = 24
_ENCODINGS = {None: None, "lz4": "x-lz4-frame", "zstd": "zstd"}
COMMITTED = "committed"
_UNDER_WAY = ("normal", "committing")


@dataclass(frozen=True, slots=True)
class UpsertSession:
    """A session of one partition.

    Attributes:
        partition: its spec as text; empty for a table without partitions.
        routes: for each bucket, from 0, the slot that takes it and the slot's address.
        hash_key: names of the columns that choose the bucket, in order.
        status: as the server last said it.
        column_ids: id of each data column, names in lower case.
    """

    partition: str
    session_id: str
    routes: tuple[tuple[str, str], ...]
    hasher: str
    hash_key: tuple[str, ...]
    status: str
    column_ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def buckets(self) -> int:
        """Return the number of buckets of the table."""
        return len(self.routes)


class UpsertTunnel:
    """Requests about one table.

    Args:
        endpoint: of the tunnel.
    """

    def __init__(self, connection: Connection, endpoint: str, table: TableName) -> None:
        self.connection = connection
        self.endpoint = endpoint
        self.table = table
        self._rest = guarded_rest(connection, endpoint, tag="TUNNEL")
        schema = f"/schemas/{table.schema}" if table.schema else ""
        self._url = f"{self._rest.endpoint}/projects/{table.project}{schema}/tables/{table.table}/upserts"

    def close(self) -> None:
        """Drops idle connections. Idempotent."""
        self._rest.session.close()

    def create(self, partition: str, *, slots: int = 1) -> UpsertSession:
        """Opens a session on a partition that exists.

        Raises:
            ServiceError: refused (no such partition, no key), or no answer.
        """
        params = {"slotnum": str(slots), "lifecycle": str(_LIFECYCLE_HOURS), **self._common(partition)}
        return self._ask(lambda: self._rest.post(self._url, params=params, headers=dict(_HEADERS)), partition)

    def load(self, partition: str, session_id: str, *, deadline: float | None = None) -> UpsertSession:
        """The session as it is now.

        Raises:
            ServiceError: it is not known, or no answer.
        """
        params = {"upsertid": session_id, **self._common(partition)}
        return self._ask(
            lambda: self._rest.get(self._url, params=params, headers=dict(_HEADERS)), partition, deadline=deadline
        )

    def put(self, session: UpsertSession, bucket: int, body: bytes, *, rows: int, compression: str | None) -> None:
        """Sends a body to the slot of its bucket, once.

        Raises:
            ServiceError: refused, moved (308), or no answer.
        """
        import pyarrow as pa

        slot, address = session.routes[bucket]
        headers = {**_HEADERS, "odps-tunnel-routed-server": address, "Content-Type": "application/octet-stream"}
        if compression is not None:
            headers["Content-Encoding"] = str(_ENCODINGS[compression])
            body = pa.compress(body, codec=compression, asbytes=True)
        params = {
            "upsertid": session.session_id,
            "bucketid": str(bucket),
            "slotid": slot,
            "record_count": str(rows),
            **self._common(session.partition),
        }
        self._run(lambda: _no_page(self._rest.put(self._url, data=body, params=params, headers=headers)), retries=0)

    def commit(
        self, partition: str, session_id: str, *, retries: int | None = None, deadline: float | None = None
    ) -> None:
        """Commits a session and waits until it is committed; one that is committed already is left alone.

        Args:
            deadline: `time.monotonic()` until which answers are waited for.

        Raises:
            ServiceError: not known, ended otherwise, or not done in time (then nobody knows).
        """
        polls = attempts = 0
        while True:
            try:
                status = self._commit_once(partition, session_id, deadline)
            except ServiceError as error:
                attempts += 1
                patient = attempts <= (self.connection.retries if retries is None else retries)
                if not may_pass(error) or not patient or _over(deadline):
                    raise
                time.sleep(backoff_seconds(attempts))
                continue
            if status == COMMITTED:
                return
            what = f"session {session_id} of partition '{partition}' is {status}"
            if status not in _UNDER_WAY:
                raise ServiceError(what, status=409, code=f"Session{status.capitalize()}", sure=True)
            if _over(deadline):
                raise ServiceError(f"{what} and not committed in time", status=None, code="", sure=False)
            polls += 1
            time.sleep(backoff_seconds(polls))

    def _commit_once(self, partition: str, session_id: str, deadline: float | None) -> str:
        session = self.load(partition, session_id, deadline=deadline)
        if session.status not in _UNDER_WAY:
            return session.status
        headers = {**_HEADERS, "odps-tunnel-routed-server": session.routes[0][1]}
        params = {"upsertid": session_id, **self._common(partition)}
        return self._ask(
            lambda: self._rest.post(self._url, params=params, headers=headers), partition, retries=0, deadline=deadline
        ).status

    def abort(self, partition: str, session_id: str) -> None:
        """Drops a session and what it holds, for everybody who writes into it.

        Raises:
            ServiceError: refused, or no answer.
        """
        params = {"upsertid": session_id, **self._common(partition)}
        self._run(lambda: _no_page(self._rest.delete(self._url, params=params, headers=dict(_HEADERS))))

    def _common(self, partition: str) -> dict[str, str]:
        params = {"partition": partition} if partition else {}
        return params | ({"quotaName": self.connection.quota} if self.connection.quota else {})

    def _run(self, request: Callable[[], T], *, retries: int | None = None, deadline: float | None = None) -> T:
        return with_retries(request, self.connection, retries=retries, deadline=deadline)

    def _ask(
        self, request: Callable[[], Any], partition: str, *, retries: int | None = None, deadline: float | None = None
    ) -> UpsertSession:
        return self._run(lambda: _session(request().json(), partition), retries=retries, deadline=deadline)


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _no_page(answer: Any) -> Any:
    """An answer that is not a page: a gateway that says 200 to everything has one.

    Raises:
        ServiceError: nobody knows what became of the request.
    """
    if answer.content.lstrip()[:1] == b"<":
        text = f"status {answer.status_code} with {answer.content[:200]!r}, which is not an answer of the service"
        raise ServiceError(text, status=None, code="", sure=False, told=False)
    return answer


def _session(described: Any, partition: str) -> UpsertSession:
    """Reads a session's description.

    Raises:
        ServiceError: it is not one, or its slots do not cover the buckets from 0 on, each once.
    """
    try:
        return _read_session(described, partition)
    except (KeyError, TypeError, AttributeError) as error:
        text = f"the answer does not describe an upsert session: {str(described)[:200]} ({error!r})"
        raise ServiceError(text, status=None, code="", sure=False, told=False) from None


def _read_session(described: dict[str, Any], partition: str) -> UpsertSession:
    routes = {
        int(bucket): (str(slot["slot_id"]), str(slot["worker_addr"]))
        for slot in described["slots"]
        for bucket in slot["buckets"]
    }
    count = sum(len(slot["buckets"]) for slot in described["slots"])
    if sorted(routes) != list(range(count)):
        text = f"session {described['id']}: its slots do not cover buckets 0 to {count - 1} once each"
        raise ServiceError(text, status=409, code="BadSlots", sure=True)
    return UpsertSession(
        partition=partition,
        session_id=str(described["id"]),
        routes=tuple(routes[bucket] for bucket in range(count)),
        hasher=str(described.get("hasher") or "default"),
        hash_key=tuple(str(name).lower() for name in described["hash_key"]),
        status=str(described["status"]).lower(),
        column_ids=_column_ids(described.get("schema") or {}),
    )


def _column_ids(schema: dict[str, Any]) -> dict[str, int]:
    columns = [column for column in schema.get("columns", ()) if "column_id" in column]
    return {str(column["name"]).lower(): int(column["column_id"]) for column in columns}
