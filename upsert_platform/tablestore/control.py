"""The control table: per destination table the applied batch, the lease and the last verdict.

A row is changed only under a condition on its epoch, which grows by one with every holder. A request without an answer
may have been applied, so its row is read and compared before the request is repeated; a condition that fails on such a
repetition may mean that the first attempt won.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from upsert_platform.destination import BatchSpan, Verdict
from upsert_platform.errors import DestinationError
from upsert_platform.tablestore.client import Client, is_missing, may_repeat
from upsert_platform.tablestore.failures import NoAnswerError, ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.pace import pause_before_attempt
from upsert_platform.tablestore.schema import create_table, wait_until_ready
from upsert_platform.writing.lease import Tenure

KEY: Final = "destination"
"""Primary key of the control table: the name of the destination table."""
_APPLIED, _CHANGELOG, _RUN, _VERDICT = "applied_batch", "changelog_id", "run", "verdict"
_CREATED = "table_created_us"
_EPOCH, _HOLDER, _TOKEN, _EXPIRES = "epoch", "holder", "lease_token", "lease_expires_ms"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A row of the control table.

    Attributes:
        expires: of the lease, seconds since 1970; 0 when nobody has it.
        token: tells two holders of the same name apart.
        created: when the table that the batches were applied to was created, microseconds since 1970; 0 if unknown.
    """

    applied_batch: int = 0
    changelog_id: str = ""
    epoch: int = 0
    holder: str = ""
    token: str = ""
    expires: float = 0.0
    verdict: Verdict | None = None
    created: int = 0


class ControlTable:
    """The control record of one destination table."""

    def __init__(self, client: Client, settings: TablestoreSettings, table_name: str) -> None:
        self._client = client
        self._name = settings.control_table
        self._key = [(KEY, table_name)]
        self._seconds = settings.retry_deadline.total_seconds()
        self.table_name = table_name

    def read(self, *, asks: bool = False) -> ControlRecord | None:
        """The record; None when it, or the control table, does not exist.

        Args:
            asks: nothing has been done yet, so a service that does not answer is given up sooner.
        """
        read = self._client.ask if asks else self._client.repeat
        try:
            _, row, _ = read("get_row", self._name, self._key, max_version=1)
        except ServiceError as error:
            if is_missing(error):
                return None
            raise
        if row is None:
            return None
        cells = {name: value for name, value, _ in row.attribute_columns}
        return ControlRecord(
            applied_batch=cells.get(_APPLIED, 0),
            changelog_id=cells.get(_CHANGELOG, ""),
            epoch=cells.get(_EPOCH, 0),
            holder=cells.get(_HOLDER, ""),
            token=cells.get(_TOKEN, ""),
            expires=cells.get(_EXPIRES, 0) / 1000,
            verdict=_read_verdict(cells.get(_VERDICT)),
            created=cells.get(_CREATED, 0),
        )

    def tenure(self) -> Tenure | None:
        """The lease of the record, for tasks that write under it."""
        record = self.read()
        return None if record is None else Tenure(str(record.epoch), record.expires, record.holder)

    def take(self, record: ControlRecord | None, *, holder: str, token: str, expires: float) -> bool:
        """Makes the caller the holder, if the record is still as read. Creates the control table when missing."""
        epoch = record.epoch + 1 if record is not None else 1
        cells = [(_EPOCH, epoch), (_HOLDER, holder), (_TOKEN, token), (_EXPIRES, int(expires * 1000))]
        if record is None:
            self._create()
            condition = self._condition(exists=False)
        else:
            condition = self._condition((_EPOCH, record.epoch), (_EXPIRES, int(record.expires * 1000)))
        return self._change(
            {"PUT": cells}, condition, applied=lambda found: found.epoch == epoch and found.token == token
        )

    def renew(self, *, epoch: int, expires: float) -> bool:
        """Prolongs the lease; False when it is no longer the caller's."""
        milliseconds = int(expires * 1000)
        return self._change(
            {"PUT": [(_EXPIRES, milliseconds)]},
            self._condition((_EPOCH, epoch)),
            applied=lambda found: found.epoch == epoch and int(found.expires * 1000) == milliseconds,
        )

    def release(self, *, epoch: int) -> bool:
        """Gives the lease back; False when it is no longer the caller's."""
        return self._change(
            {"PUT": [(_EXPIRES, 0)], "DELETE_ALL": [(_HOLDER, None), (_TOKEN, None)]},
            self._condition((_EPOCH, epoch)),
            applied=lambda found: found.epoch == epoch and found.expires == 0,
        )

    def record_applied(self, span: BatchSpan, *, epoch: int, created: int) -> bool:
        """Records a span as applied; False when the lease is no longer the caller's.

        Args:
            created: see `ControlRecord`.
        """
        cells = [(_APPLIED, span.upto), (_CHANGELOG, span.changelog_id), (_RUN, span.run), (_CREATED, created)]
        return self._change(
            {"PUT": cells},
            self._condition((_EPOCH, epoch)),
            applied=lambda found: (
                (found.epoch, found.applied_batch, found.changelog_id) == (epoch, span.upto, span.changelog_id)
            ),
        )

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps a verdict, whoever holds the lease."""
        self._create()
        cells = [(_VERDICT, _write_verdict(verdict))]
        self._client.repeat("update_row", self._name, self._row({"PUT": cells}), self._condition())

    def forget_position(self) -> None:
        """Drops the applied batch and the verdict, because the destination table is created anew."""
        if self.read() is not None:
            dropped = [(name, None) for name in (_APPLIED, _CHANGELOG, _RUN, _VERDICT, _CREATED)]
            self._client.repeat("update_row", self._name, self._row({"DELETE_ALL": dropped}), self._condition())

    def _change(self, columns: dict[str, Any], condition: Any, *, applied: Callable[[ControlRecord], bool]) -> bool:
        """Sends a conditional change until it is known whether it was applied."""
        deadline = time.monotonic() + self._seconds
        attempt = 0
        while True:
            try:
                self._client.once("update_row", self._name, self._row(columns), condition)
                return True
            except (ServiceError, NoAnswerError) as error:
                refused = isinstance(error, ServiceError) and error.code == "OTSConditionCheckFail"
                if not refused and not may_repeat(error):
                    raise DestinationError(f"control table '{self._name}': {error}") from error
                found = self.read()
                if found is not None and applied(found):
                    return True
                if refused:
                    return False
                attempt += 1
                pause = pause_before_attempt(attempt)
                if time.monotonic() + pause > deadline:
                    raise DestinationError(
                        f"control table '{self._name}': {error}; given up after {attempt} attempts"
                    ) from error
                time.sleep(pause)

    def _row(self, columns: dict[str, Any]) -> Any:
        from tablestore.metadata import Row

        return Row(self._key, columns)

    def _condition(self, *equal: tuple[str, int], exists: bool | None = None) -> Any:
        """The record exists with these numbers (0 includes absence), or does not exist, or anything (no argument)."""
        from tablestore.metadata import (
            ComparatorType,
            CompositeColumnCondition,
            Condition,
            LogicalOperator,
            RowExistenceExpectation,
            SingleColumnCondition,
        )

        if exists is False:
            return Condition(RowExistenceExpectation.EXPECT_NOT_EXIST)
        if not equal:
            return Condition(RowExistenceExpectation.IGNORE)
        checks = [
            SingleColumnCondition(name, value, ComparatorType.EQUAL, pass_if_missing=value == 0)
            for name, value in equal
        ]
        if len(checks) == 1:
            return Condition(RowExistenceExpectation.EXPECT_EXIST, checks[0])
        every = CompositeColumnCondition(LogicalOperator.AND)
        for check in checks:
            every.add_sub_condition(check)
        return Condition(RowExistenceExpectation.EXPECT_EXIST, every)

    def _create(self) -> None:
        try:
            self._client.repeat("describe_table", self._name)
            return
        except ServiceError as error:
            if not is_missing(error):
                raise
        create_table(self._client, self._name, [(KEY, "STRING")])
        wait_until_ready(self._client, self._name, probe=[(KEY, "")], seconds=self._seconds)


def _write_verdict(verdict: Verdict) -> str:
    return json.dumps(
        {
            "batch": verdict.batch,
            "passed": verdict.passed,
            "complete": verdict.complete,
            "at": verdict.at.astimezone(UTC).isoformat(),
            "detail": verdict.detail,
        },
        ensure_ascii=False,
    )


def _read_verdict(text: str | None) -> Verdict | None:
    if text is None:
        return None
    data = json.loads(text)
    return Verdict(**{**data, "at": datetime.fromisoformat(data["at"])})
