"""Implicit casts at a sink: the types that Flink writes to a column without CAST."""

from __future__ import annotations

from typing import Final

from upsert_platform.core.types import LogicalType, TypeName

_N = TypeName
_INTEGERS: Final = (_N.TINYINT, _N.SMALLINT, _N.INT, _N.BIGINT)
_NUMBERS: Final = (*_INTEGERS, _N.FLOAT, _N.DOUBLE, _N.DECIMAL)
_TEXTS: Final = (_N.CHAR, _N.VARCHAR, _N.STRING)
_BINARIES: Final = (_N.BINARY, _N.VARBINARY, _N.BYTES)
_FROM: Final[dict[TypeName, tuple[TypeName, ...]]] = {
    _N.CHAR: (_N.CHAR,),
    _N.VARCHAR: _TEXTS,
    _N.STRING: _TEXTS,
    _N.BOOLEAN: (_N.BOOLEAN,),
    _N.BINARY: (_N.BINARY,),
    _N.VARBINARY: _BINARIES,
    _N.BYTES: _BINARIES,
    _N.DECIMAL: _NUMBERS,
    _N.TINYINT: _INTEGERS[:1],
    _N.SMALLINT: _INTEGERS[:2],
    _N.INT: _INTEGERS[:3],
    _N.BIGINT: _INTEGERS,
    _N.FLOAT: (*_INTEGERS, _N.FLOAT, _N.DECIMAL),
    _N.DOUBLE: _NUMBERS,
    _N.DATE: (_N.DATE, _N.TIMESTAMP),
    _N.TIME: (_N.TIME, _N.TIMESTAMP),
    _N.TIMESTAMP: (_N.TIMESTAMP, _N.TIMESTAMP_LTZ),
    _N.TIMESTAMP_LTZ: (_N.TIMESTAMP_LTZ, _N.TIMESTAMP),
}


def can_write(source: LogicalType, target: LogicalType) -> bool:
    """Return whether Flink converts a value for a column by itself; nullability is left to the data."""
    allowed = _FROM.get(target.name)
    if allowed is not None:
        return source.name in allowed
    if source.name is not target.name:
        return False
    if target.name is TypeName.ROW:
        return len(source.fields) == len(target.fields) and all(
            can_write(left.type, right.type) for left, right in zip(source.fields, target.fields, strict=True)
        )
    pairs = ((source.key, target.key), (source.element, target.element))
    return all(left is None or right is None or can_write(left, right) for left, right in pairs)


_DIGITS: Final = {_N.TINYINT: 3, _N.SMALLINT: 5, _N.INT: 10, _N.BIGINT: 19}
_FRACTION_BITS: Final = {_N.FLOAT: (_N.TINYINT, _N.SMALLINT), _N.DOUBLE: (_N.TINYINT, _N.SMALLINT, _N.INT, _N.FLOAT)}


def keeps_apart(source: LogicalType, target: LogicalType) -> bool:
    """Return whether two different values stay different when Flink converts them for a column, as a key needs.

    Lengths of texts and bytes do not matter: a value that is too long is refused, never cut. CHAR does, because
    tables fill it up with blanks.
    """
    left, right = source.name, target.name
    if not can_write(source, target):
        return False
    if right is _N.CHAR:
        return left is _N.CHAR and (source.length or 0) <= (target.length or 0)
    if right in (*_TEXTS, *_BINARIES):
        return True
    if right is _N.DECIMAL and left in (_N.DECIMAL, *_INTEGERS):
        precision, scale = (source.precision or 0, source.scale or 0) if left is right else (_DIGITS[left], 0)
        room = (target.precision or 0) - (target.scale or 0)
        return (target.scale or 0) >= scale and room >= precision - scale
    if right in (_N.TIMESTAMP, _N.TIMESTAMP_LTZ, _N.TIME):
        both_timestamps = left in (_N.TIMESTAMP, _N.TIMESTAMP_LTZ) and right is not _N.TIME
        return (left is right or both_timestamps) and (source.precision or 0) <= (target.precision or 0)
    if left is right:
        pairs = [(source.key, target.key), (source.element, target.element)]
        pairs += [(one.type, other.type) for one, other in zip(source.fields, target.fields, strict=True)]
        return all(one is None or other is None or keeps_apart(one, other) for one, other in pairs)
    return right in _INTEGERS or left in _FRACTION_BITS.get(right, ())
