"""Which types Flink writes to a column without being asked to CAST (its implicit casts at a sink)."""

from __future__ import annotations

from typing import Final

from upsert_platform.types import LogicalType, TypeName

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
    """Whether Flink converts a value for a column by itself; nullability is left to the data."""
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
