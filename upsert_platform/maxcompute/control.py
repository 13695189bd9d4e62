"""The control record: what a destination remembers, one row in a small Delta table beside the tables it serves.

MaxStorage has no conditional write, SQL has: ``UPDATE ... WHERE revision = n`` reads and writes in one transaction, and
of two transactions that change a partition at once MaxCompute lets the later one fail (its optimistic check, by the
concurrency matrix of transactional tables). So `ControlTable.swap` is a compare-and-set: every change names the
revision it was made from and raises it by one, and is read back by its stamp. A statement that ends late, after its
client gave up, finds another revision and changes nothing. Every destination has a partition of its own, so
destinations do not disturb each other.

A statement takes MaxCompute seconds even for one row, so the record is read by MaxStorage where the project has it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.destination import Verdict
from upsert_platform.maxcompute.client import NO_INSTANCE, Client
from upsert_platform.maxcompute.connection import ServiceError, explain, is_foreign, to_service_error
from upsert_platform.maxcompute.names import TableName, quote, sql_text
from upsert_platform.writing.lease import Tenure

if TYPE_CHECKING:
    from upsert_platform.maxcompute.maxstorage import MaxStorage

_LOGGER = logging.getLogger(__name__)
_ID = "state"
_NUMBERS: Final = ("revision", "epoch", "lease_expires", "applied_batch", "committed_at")
_TEXTS: Final = ("stamp", "label", "holder", "token", "changelog_id", "table_id", "pending", "verdict", "commits")
_WITH_COMMIT: Final = re.compile(r"(\S+) commit (.+)")
_TRIES = 6
_MISSING: Final = ("NoSuchTable", "NoSuchObject", "NoSuchPartition", "ODPS-0130131")


@dataclass(frozen=True, slots=True)
class Pending:
    """Open sessions, and the commit that is about to happen: recorded before it, so that whoever comes next can finish
    it. While rows are being sent nothing is to be committed; who finds that drops the sessions.

    Attributes:
        api: which interface the sessions belong to.
        sessions: partition text and id of each session to commit.
        streams: id and version of each stream to commit; empty where sessions have none.
        after: batch after which the rows come.
        upto: batch that is applied once they are committed.
        rows: how many rows are to be committed; 0 while they are being sent.
        replaces: whether they take the place of what the table holds, so that committing them twice is no harm.
        table_id: identity of the table they are for.
        partitions: that the rows go to, where commits are counted for compaction.
        paired: whether each session has one stream of its own, at the same place of `streams`; each is committed on its
            own. Otherwise every session has all of them.
        commit: identity of the changelog's commit of `upto`.
    """

    api: str
    sessions: tuple[tuple[str, str], ...]
    streams: tuple[tuple[str, int], ...]
    after: int
    upto: int
    changelog_id: str
    run: str
    rows: int
    table_id: str = ""
    partitions: tuple[str, ...] = ()
    replaces: bool = False
    paired: bool = False
    commit: str = ""

    def streams_of(self, session: int) -> tuple[tuple[str, int], ...]:
        """The streams to commit in a session, by its place."""
        return (self.streams[session],) if self.paired else self.streams

    def to_text(self) -> str:
        """The stored form."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Pending:
        """The inverse of `to_text`."""
        data = json.loads(text)
        data["streams"] = tuple((str(stream_id), int(version)) for stream_id, version in data["streams"])
        data["sessions"] = tuple((str(partition), str(session_id)) for partition, session_id in data["sessions"])
        data["partitions"] = tuple(data["partitions"])
        return Pending(**data)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The record of one destination.

    Attributes:
        revision: raised by every change; 0 before the record exists.
        stamp: unique text of the change that made this revision.
        label: the destination in words, for people who look.
        epoch: raised by every new holder of the lease.
        token: secret of the holder's lease object; empty when nobody holds it.
        lease_expires: milliseconds since 1970 UTC, by the holder's clock.
        table_id: identity of the table that holds the applied batches; a table made anew has another one.
        commits: JSON, partition to number of commits since its last major compaction; only where compaction is on.
        committed_at: milliseconds since 1970 UTC; 0 before the first commit.
        commit: identity of the changelog's commit of the applied batch; empty if unknown. It is stored beside
            `changelog_id` in the column of that name, because control tables of earlier versions have no other.
    """

    revision: int = 0
    stamp: str = ""
    label: str = ""
    epoch: int = 0
    holder: str = ""
    token: str = ""
    lease_expires: int = 0
    applied_batch: int = 0
    changelog_id: str = ""
    table_id: str = ""
    pending: str = ""
    verdict: str = ""
    commits: str = ""
    committed_at: int = 0
    commit: str = ""

    @property
    def tenure(self) -> Tenure:
        """The lease."""
        return Tenure(self.token, self.lease_expires / 1000, self.holder, self.epoch)

    def leased(self, tenure: Tenure) -> ControlRecord:
        """This record with another lease."""
        expires = int(tenure.expires * 1000)
        return replace(self, token=tenure.token, lease_expires=expires, holder=tenure.holder, epoch=tenure.epoch)

    @property
    def pending_commit(self) -> Pending | None:
        """The recorded commit whose end is not recorded."""
        return Pending.from_text(self.pending) if self.pending else None

    @property
    def last_verdict(self) -> Verdict | None:
        """The last check."""
        return Verdict.from_json(self.verdict)

    def with_verdict(self, verdict: Verdict) -> ControlRecord:
        """This record with another last check."""
        return replace(self, verdict=verdict.to_json())

    def describes(self, table_id: str) -> bool:
        """Return whether the applied batches are in the table of this identity (unknown identities are trusted)."""
        return not self.table_id or not table_id or self.table_id == table_id


def destination_key(table: TableName, partition: str) -> str:
    """Partition value of a destination in the control table: its name, and a digest of its static partition."""
    name = table.table.lower()
    return f"{name}.{hashlib.sha256(partition.encode()).hexdigest()[:16]}" if partition else name


class ControlTable:
    """Reads and changes the record of one destination.

    Args:
        name: of the control table.
        key: of `destination_key`.
        label: the destination in words.
        storage: opens MaxStorage of the control table; without it the record is read by SQL.
    """

    def __init__(
        self,
        client: Client,
        name: TableName,
        *,
        key: str,
        label: str,
        storage: Callable[[], MaxStorage] | None = None,
    ) -> None:
        self._client = client
        self._storage = storage
        self._name = name
        self._key = key
        self._label = label
        self._where = f"destination = {sql_text(key)} AND id = {sql_text(_ID)}"

    def read(self) -> ControlRecord:
        """The record as it is; the empty one when there is none yet.

        Raises:
            EndpointError: no answer, or no right to read it.
            DestinationError: any other refusal.
        """
        for attempt in range(_TRIES):
            try:
                row = self._stored() if self._storage is not None else self._selected()
                break
            except ServiceError as error:
                if _says_missing(error):
                    return ControlRecord()
                if error.code != NO_INSTANCE or attempt + 1 >= _TRIES:
                    explain(error, self._client.connection, f"reading the control table '{self._name}'")
        if row is None:
            return ControlRecord()
        numbers = {name: int(row[name] or 0) for name in _NUMBERS}
        texts = {name: row[name] or "" for name in _TEXTS}
        texts["changelog_id"], texts["commit"] = _parted(texts["changelog_id"])
        return ControlRecord(**numbers, **texts)  # type: ignore[arg-type]

    def _stored(self) -> dict[str, Any] | None:
        """The row by MaxStorage; by SQL where that refuses."""
        import pyarrow as pa

        assert self._storage is not None
        storage = self._storage()
        try:
            session = storage.create_read_session((*_NUMBERS, *_TEXTS), partitions=(f"destination={self._key}",))
            found = [
                batch.to_pylist() for index in range(session.splits) for batch in storage.read_split(session, index)
            ]
        except Exception as error:
            if not (is_foreign(error) or isinstance(error, pa.ArrowException)):
                raise
            failure = to_service_error(error, self._client.connection)
            if _says_missing(failure):
                raise failure from None
            _LOGGER.warning("the control table '%s' is read by SQL: %s", self._name, failure)
            self._storage = None
            return self._selected()
        return next((row for rows in found for row in rows), None)

    def _selected(self) -> dict[str, Any] | None:
        """The row by SQL."""
        names = ", ".join(quote(name) for name in (*_NUMBERS, *_TEXTS))
        return next(iter(self._client.query(f"SELECT {names} FROM {self._name.sql} WHERE {self._where}")), None)

    def ensure(self) -> ControlRecord:
        """The record, made with its table and partition when it is missing.

        Raises:
            EndpointError: no answer, or no right to make it.
            DestinationError: any other refusal.
        """
        found = self.read()
        if found.revision:
            return found
        columns = [f"{quote(name)} BIGINT" for name in _NUMBERS] + [f"{quote(name)} STRING" for name in _TEXTS]
        self._define(
            f"CREATE TABLE IF NOT EXISTS {self._name.sql} (`id` STRING NOT NULL, {', '.join(columns)},"
            " PRIMARY KEY (`id`)) PARTITIONED BY (`destination` STRING)"
            ' TBLPROPERTIES ("transactional"="true", "write.bucket.num"="1")'
        )
        self._define(f"ALTER TABLE {self._name.sql} ADD IF NOT EXISTS PARTITION (`destination`={sql_text(self._key)})")
        first = ControlRecord(revision=1, stamp=uuid.uuid4().hex, label=self._label)
        values = {name: str(getattr(first, name)) for name in _NUMBERS}
        values |= {name: sql_text(_stored_text(first, name)) for name in _TEXTS}
        fresh = ", ".join(
            [f"{sql_text(_ID)} AS `id`"]
            + [f"CAST({values[name]} AS BIGINT) AS {quote(name)}" for name in _NUMBERS]
            + [f"{values[name]} AS {quote(name)}" for name in _TEXTS]
        )
        for attempt in range(_TRIES):
            try:
                self._run(
                    f"INSERT INTO TABLE {self._name.sql} PARTITION (`destination`={sql_text(self._key)})"
                    f" SELECT fresh.* FROM (SELECT {fresh}) fresh LEFT ANTI JOIN"
                    f" (SELECT `id` FROM {self._name.sql} WHERE {self._where}) present ON fresh.`id` = present.`id`"
                )
            except ServiceError as error:
                self._wait_after(error, attempt)
            found = self.read()
            if found.revision:
                return found
        raise AssertionError("the control record is not there although it was inserted")

    def swap(self, old: ControlRecord, new: ControlRecord) -> ControlRecord | None:
        """Replaces a record that is still the one that was read.

        Returns:
            The record as stored, or None when somebody changed it since `old` was read.

        Raises:
            EndpointError: no answer.
            DestinationError: a refusal that is no conflict.
        """
        stamp = uuid.uuid4().hex
        statement = self._update(old, replace(new, stamp=stamp))
        for attempt in range(_TRIES):
            failure = None
            try:
                self._run(statement)
            except ServiceError as error:
                failure = error
            found = self.read()
            if found.stamp == stamp:
                return found
            if found.revision != old.revision:
                return None
            if failure is not None:
                self._wait_after(failure, attempt)
        return None

    def _update(self, old: ControlRecord, new: ControlRecord) -> str:
        """The statement that makes `new` of `old`, if `old` is still there."""
        wanted = replace(new, revision=old.revision + 1, label=self._label)
        assigned = [f"{quote(name)} = {getattr(wanted, name)}" for name in _NUMBERS]
        assigned += [f"{quote(name)} = {sql_text(_stored_text(wanted, name))}" for name in _TEXTS]
        return f"UPDATE {self._name.sql} SET {', '.join(assigned)} WHERE {self._where} AND revision = {old.revision}"

    def _run(self, statement: str) -> None:
        self._client.execute_sql(statement)

    def _define(self, statement: str) -> None:
        try:
            self._run(statement)
        except ServiceError as error:
            explain(error, self._client.connection, f"making the control table '{self._name}'")

    def _wait_after(self, error: ServiceError, attempt: int) -> None:
        """Waits before another try after a conflict or a lost answer; explains any other error."""
        conflict = re.search(r"conflict|transaction|concurren|lock", str(error), re.IGNORECASE)
        passing = error.status is not None and (error.status >= 500 or error.status == 429)
        lost = error.code == NO_INSTANCE  # the statement may have run: whoever tries again has read the record
        if attempt + 1 >= _TRIES or not (conflict or passing or lost):
            explain(error, self._client.connection, f"writing the control table '{self._name}'")
        time.sleep(0.2 * 2**attempt)


def _stored_text(record: ControlRecord, name: str) -> str:
    """Return what a text column holds of a record."""
    text = str(getattr(record, name))
    return f"{text} commit {record.commit}" if name == "changelog_id" and record.commit else text


def _parted(stored: str) -> tuple[str, str]:
    """Return the changelog's identity and that of the commit, of the text that `_stored_text` made of them."""
    found = _WITH_COMMIT.fullmatch(stored)
    return (found[1], found[2]) if found else (stored, "")


def _says_missing(error: ServiceError) -> bool:
    return error.told and error.code in _MISSING
