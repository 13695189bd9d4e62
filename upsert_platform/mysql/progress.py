"""The progress of reading a table: the state committed with every batch of its changelog."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from upsert_platform.mysql.columns import MySqlTable, table_from_data
from upsert_platform.mysql.position import LogPosition, Prepared

LOG: Final = 0
"""Lane of the log: its numbers are bytes of the log since the first snapshot began, from `FIRST_BYTE` on."""
SNAPSHOT: Final = 1
"""Lane of snapshots: its numbers are rows that were read."""
FIRST_BYTE: Final = 4
"""A file of a log begins with four bytes that are no event; so 0 stays free for lanes that nothing was read of."""

_COMPLETE: Final = "complete"
"""Marks a position whose global ids are all transactions before it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after a batch.

    Attributes:
        server: identity of the server that the position belongs to.
        position: up to where the log is in the changelog.
        table: its columns and key, as they are at the position.
        told_at: where the log ended when the catalogue told them; a statement that changes the table before that place
            is in them already.
        unknown_upto: place of the next statement that alters the table; how rows before it look is not known. None
            where that is known.
        before: the table as it was when it was last known, where statements follow each other so that `table` is of
            behind all of them: each is judged by it. None where `table` is the one of the position.
        snapshot: whether a snapshot is being read.
        after: key of the last row of the snapshot, as texts of its columns; None before the first.
        rebuilt_from: batch that a repeated snapshot began with; 0 for a first one. Rows that no batch since then has
            met are gone.
        swept_before: rows whose last batch is before this one are to be deleted next; 0 if none are.
        consistent: position from which on the changelog equals what the table was then; None while there is
            none.
        begun: seconds since 1970 at which the server began the file of the position; 0 if that is not known.
        rewritten: columns to which statements may have given other values in rows that the changelog has, with their
            places in the log; a new snapshot begins without any.
        prepared: transactions in two phases (XA) that the log has prepared up to the position, and not completed.
        columns: names of the columns of which rows of the changelog may have values, dropped ones among them; None
            where an earlier version did not note them.
    """

    server: str
    position: LogPosition
    table: MySqlTable
    told_at: LogPosition
    unknown_upto: LogPosition | None = None
    snapshot: bool = True
    after: tuple[str, ...] | None = None
    rebuilt_from: int = 0
    swept_before: int = 0
    consistent: LogPosition | None = None
    begun: int = 0
    rewritten: tuple[str, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    columns: tuple[str, ...] | None = ()
    before: MySqlTable | None = None

    def with_columns(self, table: MySqlTable) -> Progress:
        """The state when rows of a table as it looks were landed."""
        if self.columns is None:
            return self
        return replace(self, columns=tuple(sorted({*self.columns, *(column.name for column in table.columns)})))

    def to_json(self) -> str:
        """As text, for the commit."""
        return json.dumps({**asdict(self), "gtids": _COMPLETE}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the progress that `to_json` wrote.

        An earlier version wrote global ids of which some were missing; without them they are asked for anew.
        """
        found: dict[str, Any] = json.loads(text)
        if found.pop("gtids", "") != _COMPLETE:
            found["position"]["gtids"] = ""
        for name in ("position", "told_at", "unknown_upto", "consistent"):
            found[name] = LogPosition(**found[name]) if found[name] is not None else None
        found["table"] = table_from_data(found["table"])
        before = found.get("before")
        found["before"] = None if before is None else table_from_data(before)
        found["after"] = tuple(found["after"]) if found["after"] is not None else None
        found["rewritten"] = tuple(found.get("rewritten", ()))
        columns = found.get("columns")
        found["columns"] = None if columns is None else tuple(columns)
        found["prepared"] = tuple(
            Prepared(item["xid"], LogPosition(**item["place"]) if item["place"] else None, item["followed"])
            for item in found.get("prepared", ())
        )
        return cls(**found)
