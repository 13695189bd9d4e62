"""Values as their declared types hold them: moments and times of day lose the digits that a type does not declare.

Formats read every digit that a message has, as those of Flink do. Flink cuts them where a row is serialised between
operators: TIMESTAMP(0) to (3) to milliseconds. Here a value is cut to the digits that its column declares, downwards,
before it is compared with anything, so that a key is one key in the changelog, in tables and in checks.

Other lengths are as in Flink: a DECIMAL is rounded half up by the format, which gives null where it has more digits
than fit; CHAR, VARCHAR, BINARY and VARBINARY keep what a message has, whatever their length is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.model import Table
from upsert_platform.core.types import LogicalType, TypeName, arrow_type, quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CUT: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, TypeName.TIME)
_DIGITS: Final = 6
"""Of a fraction of a second, as Arrow's columns hold it."""


def step_of(logical: LogicalType) -> int:
    """Return how many microseconds the last digit of a declared fraction is worth; 1 where none is cut."""
    if logical.name not in _CUT:
        return 1
    return int(10 ** (_DIGITS - min(logical.precision or 0, _DIGITS)))


def is_cut(logical: LogicalType) -> bool:
    """Return whether values of a type, or parts of them, may have more digits than it declares."""
    return any(step_of(part) > 1 for part in logical.parts())


def declared_values(values: pa.Array, logical: LogicalType) -> pa.Array:
    """Return values of the type `arrow_type` gives, cut to the digits that are declared, at any depth."""
    import pyarrow as pa

    if not is_cut(logical) or not len(values):
        return values
    match logical.name:
        case TypeName.ARRAY:
            assert logical.element is not None
            offsets, (inner,) = _parts(values)
            return pa.ListArray.from_arrays(offsets, declared_values(inner, logical.element), type=values.type)
        case TypeName.MAP | TypeName.MULTISET:
            key, value = (logical.key, logical.element) if logical.key is not None else (logical.element, None)
            assert key is not None
            offsets, (keys, items) = _parts(values)
            items = items if value is None else declared_values(items, value)
            return pa.MapArray.from_arrays(offsets, declared_values(keys, key), items, type=values.type)
        case TypeName.ROW:
            fields = [declared_values(values.field(place), field.type) for place, field in enumerate(logical.fields)]
            kinds = list(arrow_type(logical))
            return pa.StructArray.from_arrays(fields, fields=kinds, mask=values.is_null())
    return _cut(values, step_of(logical))


def _parts(values: Any) -> tuple[pa.Array, list[pa.Array]]:
    """Return offsets of lists or maps, null where a value is, and what they point into."""
    import numpy as np
    import pyarrow as pa

    null = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    held = [values.keys, values.items] if pa.types.is_map(values.type) else [values.values]
    return pa.array(values.offsets.to_numpy(), mask=null), held


def _cut(values: pa.Array, step: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    rest = numbers % step
    if not rest.any():
        return values
    least = np.iinfo(np.int64).min
    cut = np.where(numbers < least + step, numbers, numbers - rest)
    return pa.array(cut, mask=values.is_null().to_numpy(zero_copy_only=False)).cast(values.type)


def cut_keys(table: Table) -> Mapping[str, LogicalType]:
    """Return the columns of a primary key whose values may have more digits than they declare.

    Changelogs of earlier versions hold such keys. What reads them cuts them, so that the later of two rows counts.
    """
    kinds = {column.name: column.type for column in table.columns}
    found = {name: kinds[name] for name in table.primary_key}
    return {name: kind for name, kind in found.items() if kind is not None and step_of(kind) > 1}


def with_declared_keys(part: pa.RecordBatch, kinds: Mapping[str, LogicalType]) -> pa.RecordBatch:
    """Return rows of a changelog with the columns of `cut_keys` cut, as far as they are there."""
    for name, kind in kinds.items():
        place = part.schema.get_field_index(name)
        if place >= 0:
            part = part.set_column(place, part.schema.field(place), declared_values(part.column(place), kind))
    return part


def frame_with_declared_keys(frame: DataFrame, kinds: Mapping[str, LogicalType]) -> DataFrame:
    """Return rows of a changelog as `with_declared_keys` does, in Spark."""
    if not kinds:
        return frame
    from pyspark.sql import functions as F

    return frame.withColumns({name: F.expr(_cut_in_sql(name, kind)) for name, kind in kinds.items()})


def _cut_in_sql(name: str, kind: LogicalType) -> str:
    step, column = step_of(kind), quote_name(name)
    if kind.name is TypeName.TIME:
        return f"{column} - PMOD({column}, {step})"
    micros = f"UNIX_MICROS(CAST({column} AS TIMESTAMP))"
    cut = f"TIMESTAMP_MICROS({micros} - PMOD({micros}, {step}))"
    return f"CAST({cut} AS TIMESTAMP_NTZ)" if kind.name is TypeName.TIMESTAMP else cut
