"""Tables as the vendors' clients read them: the SDK of Tablestore, PyODPS, and a consumer for upsert topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from upsert_platform.referee import clocks
from upsert_platform.referee.errors import UndecodableError, UnjudgedError
from upsert_platform.referee.json_values import nested_value
from upsert_platform.referee.kinds import BINARIES, INTEGERS, TEXTS, Kind, Odd, kind_of
from upsert_platform.referee.last_values import LastValues

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_OF_A_CALL = 5_000


def tablestore_rows(
    client: Any, table: str, columns: Mapping[str, str], primary_key: Sequence[str]
) -> Iterator[list[Any]]:
    """All rows of a Tablestore table.

    Args:
        client: an `OTSClient`.
        columns: name to type of what is to be read, in the order of the result.
        primary_key: in the order of the table's.
    """
    from tablestore import INF_MAX, INF_MIN, Direction

    kinds = {name: kind_of(text) for name, text in columns.items()}
    start: Any = [(name, INF_MIN) for name in primary_key]
    end = [(name, INF_MAX) for name in primary_key]
    while start:
        _, start, found, _ = client.get_range(table, Direction.FORWARD, start, end, limit=_ROWS_OF_A_CALL)
        for row in found:
            cells = dict(row.primary_key) | {name: value for name, value, _ in row.attribute_columns}
            yield [_from_cell(cells.get(name), kind) for name, kind in kinds.items()]


def maxcompute_rows(client: Any, table: str, columns: Mapping[str, str]) -> Iterator[list[Any]]:
    """All rows of a MaxCompute table, by a SELECT.

    Args:
        client: an `odps.ODPS`.
        columns: name to type of what is to be read, in the order of the result.
    """
    kinds = [kind_of(text) for text in columns.values()]
    names = ", ".join(f"`{name}`" for name in columns)
    with client.execute_sql(f"SELECT {names} FROM {table}").open_reader(tunnel=True) as reader:
        for record in reader:
            yield [_from_record(value, kind) for value, kind in zip(record.values, kinds, strict=True)]


def topic_rows(topic: LastValues, columns: Sequence[str]) -> Iterator[list[Any]]:
    """The rows of an upsert topic: the last values that it holds."""
    for last in topic.results():
        if last.row is not None:
            yield [last.row[name] for name in columns]


def _from_cell(value: Any, kind: Kind) -> Any:
    """A cell of Tablestore."""
    if isinstance(value, bytearray):
        value = bytes(value)
    if value is None or _is_plain(value, kind):
        return value
    if not isinstance(value, str) or kind.root in _PLAIN:
        return Odd(repr(value))
    try:
        if kind.root == "DECIMAL":
            return Decimal(value)
        if kind.root == "DATE":
            return clocks.read_date(value)
        if kind.root == "TIME":
            return clocks.read_clock(value)
        if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            return clocks.read_stamp(value, blank="T", zone="Z" if kind.root.endswith("LTZ") else "")
        return nested_value(value, kind)
    except (UndecodableError, UnjudgedError, InvalidOperation):
        return Odd(repr(value))


_PLAIN = {**dict.fromkeys(TEXTS, str), **dict.fromkeys(BINARIES, bytes), **dict.fromkeys(INTEGERS, int)} | {
    "BOOLEAN": bool,
    "FLOAT": float,
    "DOUBLE": float,
}


def _is_plain(value: Any, kind: Kind) -> bool:
    """Return whether a value is of the Python type that clients give for values of this type."""
    wanted = _PLAIN.get(kind.root)
    return wanted is not None and isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool)


def _from_record(value: Any, kind: Kind) -> Any:
    """A value of PyODPS; a time without a zone is told in UTC, one with a zone is brought there."""
    if value is None:
        return None
    match kind.root:
        case "DATE":
            day = date.fromisoformat(value) if isinstance(value, str) else value
            return day.toordinal() - _EPOCH.toordinal()
        case "TIME":
            return clocks.read_clock(value)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _nanos(value)
        case "DECIMAL":
            return Decimal(value)
        case "ARRAY":
            return [_from_record(item, kind.parts[0][1]) for item in value]
        case "MAP":
            (_, key), (_, item) = kind.parts
            return [(_from_record(name, key), _from_record(found, item)) for name, found in value.items()]
        case "ROW":
            named = value if isinstance(value, Mapping) else value._asdict()
            return [_from_record(named.get(name), part) for name, part in kind.parts]
    if isinstance(value, str) and kind.root in BINARIES:
        value = value.encode()
    elif isinstance(value, bytes) and kind.root in TEXTS:
        value = value.decode()
    return value if _is_plain(value, kind) else Odd(repr(value))


def _nanos(value: Any) -> int:
    """Nanoseconds since 1970 of a datetime, or of a timestamp of pandas, which has digits of its own."""
    extra = int(getattr(value, "nanosecond", 0))
    at = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    since = at - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000 + extra
