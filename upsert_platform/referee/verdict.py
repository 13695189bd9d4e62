"""The comparison of what a table should hold with what it holds, row by row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from upsert_platform.referee.kinds import kind_of, texts_of
from upsert_platform.referee.last_values import LastValues
from upsert_platform.referee.selection import Selection

_SHOWN = 20
_AT_ONCE = 5_000
_MASKED = "***"


@dataclass(frozen=True)
class Difference:
    """A key whose row is not what it should be.

    Attributes:
        status: ``missing``, ``extra``, ``stale``, ``twice`` or ``refused``.
        key: values of the key's columns, as JSON text.
        detail: which columns differ, and how.
    """

    status: str
    key: str
    detail: str = ""


@dataclass
class Verdict:
    """The verdict of the referee.

    Attributes:
        equal_rows: rows that are what they should be.
        missing: keys whose row is not there.
        extra: keys whose row should not be there.
        stale: keys whose row has other values.
        twice: keys with more than one row.
        refused: keys that differ and are known to be refused by the table's system; not among the others.
        open_keys: keys that differ, whose last record the referee's decoders leave open; not among the others.
        moving: keys that differ, and that records behind those of the topic change, so that the table may have them
            already; not among the others.
        unknown: rows of keys that the topic holds nothing of, where it lost its oldest records, or has records whose
            keys cannot be judged.
        topic: what became of the topic's records.
        differences: the first of every status.
    """

    equal_rows: int = 0
    missing: int = 0
    extra: int = 0
    stale: int = 0
    twice: int = 0
    refused: int = 0
    open_keys: int = 0
    moving: int = 0
    unknown: int = 0
    topic: dict[str, Any] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def differing(self) -> int:
        """Keys that differ, whatever the reason."""
        return self.missing + self.extra + self.stale + self.twice + self.refused

    @property
    def equal(self) -> bool:
        """Return whether the table holds what the topic says; refused rows are differences too."""
        return self.differing == 0

    @property
    def whole(self) -> bool:
        """Return whether every key could be judged, but for those that move."""
        return not (self.open_keys or self.unknown or self.topic.get("lost_keys") or self.topic.get("set_aside"))

    def to_json(self) -> str:
        """Everything, as JSON text."""
        return json.dumps({"equal": self.equal, "whole": self.whole, **asdict(self)}, ensure_ascii=False)


@dataclass(frozen=True)
class Target:
    """The columns of a table.

    Attributes:
        columns: name to type, in the order of rows.
        primary_key: names; the key that the topic's keys are compared with, in the order of the topic's key.
        masked: columns whose values differences do not show.
    """

    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    masked: frozenset[str] = frozenset()


def judge(
    topic: LastValues,
    rows: Iterable[Sequence[Any]],
    target: Target,
    selection: Selection,
    *,
    refused: Collection[Sequence[Any]] = (),
    later: Callable[[], Iterable[Sequence[Any]]] = tuple,
    lost_records: bool = False,
    shown: int = _SHOWN,
) -> Verdict:
    """Compares a table with the last values of its topic.

    Args:
        rows: of the table, values in the order of the target's columns.
        refused: keys that the table's system is known to have refused, values in the order of the primary key.
        later: called when all rows are read; gives the keys of records behind those of the topic that the table may
            hold by then, values in the order of the primary key.
        lost_records: whether the topic lost its oldest records, so that nobody knows of keys without any.
        shown: how many differences of a status are kept.
    """
    judged = _Judged(target)
    try:
        judged.expect(topic, selection)
        judged.find(rows)
        judged.refuse(refused)
        judged.move(later())
        verdict = judged.compare(lost_records=lost_records or topic.counts.lost_keys > 0, shown=shown)
    finally:
        judged.close()
    verdict.topic = asdict(topic.counts)
    if topic.counts.lost_keys:
        verdict.notes.append(f"{topic.counts.lost_keys} records have keys that the referee cannot read for certain")
    return verdict


class _Judged:
    """Both sides in a database, which lives on disk as soon as it outgrows its cache."""

    def __init__(self, target: Target) -> None:
        self._names = list(target.columns)
        self._kinds = [kind_of(text) for text in target.columns.values()]
        self._masked = target.masked
        self._key_places = [self._names.index(name) for name in target.primary_key]
        self._key_kinds = [self._kinds[place] for place in self._key_places]
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE expected (key TEXT PRIMARY KEY, row TEXT, open INT) WITHOUT ROWID")
        self._database.execute("CREATE TABLE found (key TEXT PRIMARY KEY, row TEXT, times INT) WITHOUT ROWID")
        self._database.execute("CREATE TABLE refused (key TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("CREATE TABLE moving (key TEXT PRIMARY KEY) WITHOUT ROWID")

    def close(self) -> None:
        self._database.close()

    def expect(self, topic: LastValues, selection: Selection) -> None:
        key = [selection.columns[self._names[place]] for place in self._key_places]

        def made() -> Iterable[tuple[str, str | None, int]]:
            for last in topic.results():
                values = selection.row(last.row)
                text = None if values is None else texts_of(values, self._kinds)
                yield texts_of([last.key[str(name)] for name in key], self._key_kinds), text, last.is_open

        self._fill("INSERT INTO expected VALUES (?, ?, ?)", made())

    def find(self, rows: Iterable[Sequence[Any]]) -> None:
        made = ((self._key(row), texts_of(row, self._kinds)) for row in rows)
        self._fill(
            "INSERT INTO found VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1, row = excluded.row", made
        )

    def refuse(self, keys: Collection[Sequence[Any]]) -> None:
        self._fill("INSERT OR IGNORE INTO refused VALUES (?)", ((texts_of(key, self._key_kinds),) for key in keys))

    def move(self, keys: Iterable[Sequence[Any]]) -> None:
        self._fill("INSERT OR IGNORE INTO moving VALUES (?)", ((texts_of(key, self._key_kinds),) for key in keys))

    def compare(self, *, lost_records: bool, shown: int) -> Verdict:
        verdict = Verdict()
        kept: dict[str, int] = {}
        both = self._database.execute(
            "SELECT key, e.row, e.open, f.row, f.times, r.key IS NOT NULL, m.key IS NOT NULL FROM"
            " (SELECT key FROM expected UNION SELECT key FROM found)"
            " LEFT JOIN expected e USING (key) LEFT JOIN found f USING (key) LEFT JOIN refused r USING (key)"
            " LEFT JOIN moving m USING (key)"
        )
        for key, wanted, is_open, found, times, is_refused, moves in both:
            if times == 1 and found == wanted:
                verdict.equal_rows += 1
                continue
            if found is None and wanted is None:
                continue
            status = (
                "moving"
                if moves
                else self._status(wanted, is_open, found, times, is_refused, lost_records=lost_records)
            )
            setattr(verdict, status, getattr(verdict, status) + 1)
            kept[status] = kept.get(status, 0) + 1
            if kept[status] <= shown:
                verdict.differences.append(Difference(status, self._shown_key(key), self._detail(wanted, found)))
        return verdict

    def _status(
        self,
        wanted: str | None,
        is_open: int | None,
        found: str | None,
        times: int,
        refused: int,
        *,
        lost_records: bool,
    ) -> str:
        if is_open:
            return "open_keys"
        if refused:
            return "refused"
        if found is not None and is_open is None and lost_records:
            return "unknown"
        if found is not None and times > 1:
            return "twice"
        if found is None:
            return "missing"
        return "extra" if wanted is None else "stale"

    def _detail(self, wanted: str | None, found: str | None) -> str:
        if wanted is None or found is None:
            return ""
        pairs = zip(self._names, json.loads(wanted), json.loads(found), strict=True)
        return "; ".join(
            f"{name}: expected {self._shown(name, repr(one))}, found {self._shown(name, repr(other))}"
            for name, one, other in pairs
            if one != other
        )

    def _shown(self, name: str, text: str) -> str:
        return _MASKED if name in self._masked else text

    def _shown_key(self, key: str) -> str:
        names = [self._names[place] for place in self._key_places]
        if self._masked.isdisjoint(names):
            return key
        values = zip(names, json.loads(key), strict=True)
        return json.dumps([_MASKED if name in self._masked else value for name, value in values], ensure_ascii=False)

    def _key(self, row: Sequence[Any]) -> str:
        return texts_of([row[place] for place in self._key_places], self._key_kinds)

    def _fill(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        waiting: list[tuple[Any, ...]] = []
        for row in rows:
            waiting.append(row)
            if len(waiting) >= _AT_ONCE:
                self._database.executemany(statement, waiting)
                waiting.clear()
        self._database.executemany(statement, waiting)
