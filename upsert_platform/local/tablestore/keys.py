"""Primary keys as bytes that sort like the keys: the form in which rows are stored and ranges are read."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from upsert_platform.local.tablestore import limits, plainbuffer
from upsert_platform.local.tablestore.errors import invalid, wrong_key
from upsert_platform.local.tablestore.plainbuffer import (
    AUTO_INCREMENT,
    BLOB,
    INF_MAX,
    INF_MIN,
    INTEGER,
    STRING,
    KeyCell,
    show,
)

_read_i64 = struct.Struct("<q").unpack_from
_pack_u64 = struct.Struct(">Q").pack
_SIGN = 1 << 63
_TYPE_NAMES = {INTEGER: "INTEGER", STRING: "STRING", BLOB: "BINARY"}
_BELOW, _VALUE, _ABOVE = b"\x01", b"\x02", b"\x03"
_ALLOWED = frozenset((INTEGER, STRING, BLOB, INF_MIN, INF_MAX, AUTO_INCREMENT))


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a table's primary key; ``kind`` is the PlainBuffer type of its values."""

    name: bytes
    kind: int
    auto_increment: bool = False


def encode_component(value: bytes) -> bytes:
    """The sortable form of one key value in PlainBuffer form."""
    kind = value[0]
    if kind == INTEGER:
        return _VALUE + _pack_u64(_read_i64(value, 1)[0] + _SIGN)
    if kind == INF_MIN:
        return _BELOW
    if kind == INF_MAX:
        return _ABOVE
    raw = value[5:]
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"\0\xff")
    return b"\x02%b\0\0" % raw


def check_cells(key: list[KeyCell]) -> None:
    """Refuses what no table accepts: no key, a type that keys do not have, a value that is too long."""
    if not key:
        raise plainbuffer.broken("PK is empty")
    for name, value, _ in key:
        kind = value[0]
        if kind not in _ALLOWED:
            raise invalid(f"{'double' if kind == plainbuffer.DOUBLE else kind} can not be used as primary key.")
        if len(value) - 5 > limits.KEY_VALUE:
            raise invalid(
                f"The length of primary key column: '{show(name)}' exceeds the MaxLength: {limits.KEY_VALUE} "
                f"with CurrentLength: {len(value) - 5}."
            )


def encode_key(columns: tuple[KeyColumn, ...], key: list[KeyCell], *, bounds: bool = False) -> bytes:
    """The sortable form of a full key.

    Args:
        columns: of the table, in order; the key must name them in that order.
        key: as decoded from a request.
        bounds: accepts the infinities, for ranges.

    Raises:
        ServiceError: ``OTSInvalidPK`` where the key does not fit the table.
    """
    if len(key) != len(columns):
        raise wrong_key(f"Validate PK size fail. Input: {len(key)}, Meta: {len(columns)}.")
    parts = []
    for column, (name, value, _) in zip(columns, key, strict=True):
        if name != column.name:
            raise wrong_key(f"Validate PK name fail. Input: {show(name)}, Meta: {show(column.name)}.")
        kind = value[0]
        if kind != column.kind and not (bounds and kind in (INF_MIN, INF_MAX)):
            if kind == AUTO_INCREMENT:
                raise invalid("PKAutoIncr can't be used for read operations.")
            got = _TYPE_NAMES.get(kind, "INF" if kind in (INF_MIN, INF_MAX) else str(kind))
            raise wrong_key(
                f"Validate PK type fail. Input: {got}, Meta: {_TYPE_NAMES[column.kind]}, column: {show(name)}."
            )
        parts.append(encode_component(value))
    return b"".join(parts)
