"""The control table: per destination table the applied batch, the lease and the last verdict.

A row is changed only under a condition on its epoch, which grows by one with every holder. A request without an answer
may have been applied, so its row is read and compared before the request is repeated; a condition that fails on such a
repetition may mean that the first attempt won.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from upsert_platform.core.destination import BatchSpan, Verdict
from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.client import Client, is_missing, may_repeat
from upsert_platform.tablestore.failures import NoAnswerError, ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.pace import pause_before_attempt
from upsert_platform.tablestore.schema import create_table, wait_until_ready
from upsert_platform.writing.controlled import Control, ControlRecord
from upsert_platform.writing.lease import RenewedLease, Tenure
from upsert_platform.writing.time_limit import time_left

KEY: Final = "destination"
"""Primary key of the control table: the name of the destination table."""
_APPLIED, _CHANGELOG, _RUN, _CREATED = "applied_batch", "changelog_id", "run", "table_created_us"
_COMMIT = "applied_commit"
_VERDICT = "verdict"
_EPOCH, _HOLDER, _TOKEN, _EXPIRES = "epoch", "holder", "lease_token", "lease_expires_ms"


class ControlTable(Control):
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
        cells = self._cells(asks=asks)
        if cells is None:
            return None
        return ControlRecord(
            applied_batch=cells.get(_APPLIED, 0),
            changelog_id=cells.get(_CHANGELOG, ""),
            tenure=Tenure(
                cells.get(_TOKEN, ""), cells.get(_EXPIRES, 0) / 1000, cells.get(_HOLDER, ""), cells.get(_EPOCH, 0)
            ),
            verdict=Verdict.from_json(cells.get(_VERDICT)),
            table_id=cells.get(_CREATED, 0),
            commit=cells.get(_COMMIT, ""),
        )

    def _cells(self, *, asks: bool = False) -> dict[str, Any] | None:
        read = self._client.ask if asks else self._client.repeat
        try:
            _, row, _ = read("get_row", self._name, self._key, max_version=1)
        except ServiceError as error:
            if is_missing(error):
                return None
            raise
        return None if row is None else {name: value for name, value, _ in row.attribute_columns}

    def tenure(self) -> Tenure:
        """The lease of the record."""
        return (self.read() or ControlRecord()).tenure

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Stores a lease, and cells beside it. Creates the control table when it is missing."""
        cells = {_EPOCH: new.epoch, _HOLDER: new.holder, _TOKEN: new.token, _EXPIRES: int(new.expires * 1000), **values}
        if not old.epoch:
            self._create()
            if self._change(cells, self._condition(exists=False)):
                return True  # else a check may have made the record
        return self._change(cells, self._condition((_EPOCH, old.epoch), (_EXPIRES, int(old.expires * 1000))))

    def record_applied(self, lease: RenewedLease, span: BatchSpan, *, created: int) -> None:
        """Records a span as applied.

        Args:
            created: when the table was created, microseconds since 1970, which is its identity; 0 if unknown.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        position = {_APPLIED: span.upto, _CHANGELOG: span.changelog_id, _RUN: span.run, _CREATED: created}
        position[_COMMIT] = span.commit
        lease.change(**position)

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps a verdict, whoever holds the lease."""
        self._create()
        cells = [(_VERDICT, verdict.to_json())]
        self._client.repeat("update_row", self._name, self._row({"PUT": cells}), self._condition())

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps a verdict in the place of another one, by its stored text: an earlier version has its own."""
        self._create()
        cells = self._cells()
        stored = None if cells is None else cells.get(_VERDICT)
        if Verdict.from_json(stored) != old:
            return False
        return self._change({_VERDICT: new.to_json()}, self._with_verdict(stored, exists=cells is not None))

    def forget_position(self) -> None:
        """Drops the applied batch and the verdict, because the destination table is created anew."""
        if self.read() is not None:
            dropped = [(name, None) for name in (_APPLIED, _CHANGELOG, _RUN, _VERDICT, _CREATED, _COMMIT)]
            self._client.repeat("update_row", self._name, self._row({"DELETE_ALL": dropped}), self._condition())

    def _change(self, cells: Mapping[str, Any], condition: Any) -> bool:
        """Puts cells under a condition, until it is known whether they were put."""
        deadline = time.monotonic() + min(self._seconds, time_left())
        attempt = 0
        while True:
            try:
                self._client.once("update_row", self._name, self._row({"PUT": list(cells.items())}), condition)
                return True
            except (ServiceError, NoAnswerError) as error:
                refused = isinstance(error, ServiceError) and error.code == "OTSConditionCheckFail"
                if not refused and not may_repeat(error):
                    raise DestinationError(f"control table '{self._name}': {error}") from error
                found = self._cells()
                if found is not None and cells.items() <= found.items():
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
        every = CompositeColumnCondition(LogicalOperator.AND)
        for check in checks:
            every.add_sub_condition(check)
        return Condition(RowExistenceExpectation.EXPECT_EXIST, every)

    def _with_verdict(self, text: str | None, *, exists: bool) -> Any:
        """The record has this text as its verdict, or none; or the record does not exist."""
        from tablestore.metadata import ComparatorType, Condition, RowExistenceExpectation, SingleColumnCondition

        if not exists:
            return self._condition(exists=False)
        same = SingleColumnCondition(_VERDICT, text or "", ComparatorType.EQUAL, pass_if_missing=text is None)
        return Condition(RowExistenceExpectation.EXPECT_EXIST, same)

    def _create(self) -> None:
        try:
            self._client.repeat("describe_table", self._name)
            return
        except ServiceError as error:
            if not is_missing(error):
                raise
        create_table(self._client, self._name, [(KEY, "STRING")])
        wait_until_ready(self._client, self._name, probe=[(KEY, "")], seconds=self._seconds)
