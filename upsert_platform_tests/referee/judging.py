"""What tests tell the referee: topics and tables on the local servers, as plain data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.referee.formats import Side
from upsert_platform.referee.last_values import Form, LastValues
from upsert_platform.referee.selection import Selection
from upsert_platform.referee.stores import maxcompute_rows, tablestore_rows
from upsert_platform.referee.topic import Ends, Record, consume
from upsert_platform.referee.verdict import Target, Verdict, judge


@dataclass(frozen=True)
class Declared:
    """A table of a test: columns, key and how its topic is written.

    Attributes:
        columns: name to type.
        value: names of the columns that values have; all if None.
    """

    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    format: str = "json"
    value: tuple[str, ...] | None = None
    key_options: Mapping[str, str] = field(default_factory=dict)
    value_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> Form:
        """How the referee reads records."""
        names = self.value or tuple(self.columns)
        key = {name: f"{self.columns[name]} NOT NULL" for name in self.primary_key}
        return Form(
            Side(self.format, key, self.primary_key, self.key_options),
            Side(self.format, {name: key.get(name, self.columns[name]) for name in names}, names, self.value_options),
            self.primary_key,
        )

    @property
    def target(self) -> Target:
        """The same columns as a table."""
        return Target(self.columns, self.primary_key)

    def last_values(
        self,
        records: Iterable[Record],
        *,
        batches: Sequence[Ends] = (),
        set_aside: Collection[tuple[str, int, int]] = (),
    ) -> LastValues:
        """The last values of records."""
        found = LastValues(self.form, batches=batches, set_aside=set_aside)
        found.add(records)
        return found

    def judge(
        self, records: Iterable[Record], rows: Iterable[Sequence[Any]], selection: Selection | None = None, **more: Any
    ) -> Verdict:
        """The verdict on rows in the order of the columns."""
        last = self.last_values(records)
        try:
            return judge(last, rows, self.target, selection or self.whole(), **more)
        finally:
            last.close()

    def whole(self) -> Selection:
        """A selection of every column under its own name."""
        return Selection({name: name for name in self.columns})


def records_of(bootstrap: str, *topics: str) -> Iterator[Record]:
    """Every committed record of topics."""
    return consume({"bootstrap.servers": bootstrap}, topics)


def latest(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """The value of the last record of each key, of records of a partition in their order; tombstones leave no key."""
    found: dict[bytes | None, bytes] = {}
    for record in records:
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    return found


def tablestore_table(
    variables: Mapping[str, str], table: str, columns: Mapping[str, str], primary_key: Sequence[str]
) -> Iterator[list[Any]]:
    """The rows of a Tablestore table, by the SDK."""
    from tablestore import OTSClient

    client = OTSClient(
        variables["UPSERT_TABLESTORE_ENDPOINT"],
        variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        variables["UPSERT_TABLESTORE_INSTANCE"],
        logger_name=None,
    )
    return tablestore_rows(client, table, columns, primary_key)


def maxcompute_table(variables: Mapping[str, str], table: str, columns: Mapping[str, str]) -> Iterator[list[Any]]:
    """The rows of a MaxCompute table, by PyODPS."""
    from odps import ODPS

    client = ODPS(
        variables["UPSERT_MAXCOMPUTE_ACCESS_ID"],
        variables["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
        variables["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=variables["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )
    return maxcompute_rows(client, table, columns)


def told(verdict: Verdict) -> list[str]:
    """A line for every difference that is kept, and for what could not be judged; empty when all is equal."""
    lines = [f"{item.status} {item.key} {item.detail}".rstrip() for item in verdict.differences]
    if not verdict.whole:
        lines.append(f"not judged: {verdict.open_keys} keys, {verdict.unknown} rows, {verdict.topic}")
    return lines
