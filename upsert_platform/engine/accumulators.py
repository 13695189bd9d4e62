"""Accumulators of groups: additive sums, so that partial results of tasks, batches and retractions merge alike."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.changelog.row_hashes import normal
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Aggregate, Call
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.engine import exact
from upsert_platform.engine.keys import first_rows
from upsert_platform.engine.percentiles import percentiles
from upsert_platform.engine.steps import WEIGHT

_CODE: Final = internal("code")
ROWS: Final = internal("rows")
"""BIGINT: rows of a group; at 0 the group is gone."""
_INTEGERS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
_FLOATS: Final = (TypeName.FLOAT, TypeName.DOUBLE)
_EXACT: Final = ("doubles", "squares")
"""Kinds of sums that are kept without rounding."""
MOMENTS: Final = {
    "var_pop": (False, False), "var_samp": (False, True), "stddev_pop": (True, False), "stddev_samp": (True, True),
}  # fmt: skip
"""Functions to whether they are a root, and whether of a sample."""
TEXTS: Final = {"listagg": None, "json_arrayagg": ("[", "]"), "json_objectagg": ("{", "}")}
"""Functions that put texts together, to what stands around the texts; without any it stands alone, LISTAGG is null."""
RESPECT_NULLS: Final = "RESPECT NULLS"
_DIVISION: Final = Context(prec=76, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One column of a group's state.

    Attributes:
        kind: a sum (``count``, ``integers``, ``decimals``, ``doubles``, ``squares`` of doubles), ``min`` or ``max`` of
            what was added, or of a multiset, which tells them whole, ``least``, ``greatest``, ``joined`` or ``listed``.
        argument: the column, or None for rows.
        separator: between texts that are joined.
    """

    name: str
    kind: str
    argument: str | None
    filter: str | None
    distinct: bool
    type: LogicalType
    separator: str | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The type of its column."""
        match self.kind:
            case "count" | "integers":
                return pa.int64()
            case "decimals":
                return pa.decimal128(38, self.type.scale or 0)
            case "doubles" | "squares":
                return pa.binary()
            case "listed":
                return pa.list_(arrow_type(self.type))
        return arrow_type(self.type)

    @property
    def is_told_whole(self) -> bool:
        """Return whether a new value replaces the old one; then a BOOLEAN column says where there is one."""
        return self.kind in ("least", "greatest", "joined", "listed")

    @property
    def columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Names and types of its columns."""
        flag = [(f"{self.name}_told", pa.bool_())] if self.is_told_whole else []
        return ((self.name, self.arrow), *flag)


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The columns of a group's state, and which of them each call reads.

    Attributes:
        group: columns of GROUP BY with their types.
        reads: per call, name of its value and of its count of values (the same for counts); of a variance the sum of
            squares, the count and the sum; of an array with nulls the values, their count and the count of rows.
    """

    group: tuple[tuple[str, pa.DataType], ...]
    items: tuple[Accumulator, ...]
    calls: tuple[Call, ...]
    reads: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        """Names of the columns of GROUP BY."""
        return [name for name, _ in self.group]

    @property
    def values(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Names and types of the columns beside them."""
        return ((ROWS, pa.int64()), *(column for item in self.items for column in item.columns))

    @property
    def linear(self) -> tuple[Accumulator, ...]:
        """Those that each row adds to."""
        return tuple(item for item in self.items if not item.distinct and not item.is_told_whole)

    def complete(self, table: pa.Table) -> pa.Table:
        """Adds the columns that a partial result lacks, as nothing."""
        columns: list[Any] = [table.column(name).cast(kind) for name, kind in self.group]
        sums = {ROWS, *(item.name for item in self.items if item.kind in ("count", "integers", "decimals"))}
        for name, kind in self.values:
            if name in table.column_names:
                columns.append(table.column(name).cast(kind))
            else:
                zero = name in sums
                columns.append(pa.repeat(pa.scalar(0 if zero else None, kind), table.num_rows))
        return pa.table(columns, names=[*self.names, *(name for name, _ in self.values)])


def plan_accumulators(node: Aggregate) -> Accumulators:
    """Return the accumulators of a GROUP BY."""
    types = {field.name: field.type for field in node.input.fields}
    items: dict[tuple[Any, ...], Accumulator] = {}

    def keep(kind: str, call: Call, argument: str | None, *, distinct: bool) -> str:
        logical = types[argument] if argument else LogicalType(TypeName.BIGINT)
        known = (kind, argument, call.filter, distinct, call.separator)
        new = Accumulator(internal(f"a{len(items)}"), kind, argument, call.filter, distinct, logical, call.separator)
        return items.setdefault(known, new).name

    reads: list[tuple[str, ...]] = []
    for call in node.calls:
        if call.function in ("min", "max"):
            kind = call.function
            if not node.input.appends:
                kind = "least" if call.function == "min" else "greatest"
            name = keep(kind, call, call.argument, distinct=False)
            reads.append((name, name))
            continue
        if call.function in TEXTS:
            name = keep("joined", call, call.argument, distinct=call.distinct)
            reads.append((name, name))
            continue
        if call.function in ("array_agg", "collect"):
            plain = replace(call, separator=None)
            name = keep("listed", plain, call.argument, distinct=call.distinct)
            counts: tuple[str, ...] = (name,)
            if call.separator == RESPECT_NULLS:
                rows = ROWS if call.filter is None else keep("count", plain, None, distinct=False)
                counts = (keep("count", plain, call.argument, distinct=False), rows)
            reads.append((name, *counts))
            continue
        if call.function == "percentile":
            name = keep("listed", replace(call, separator=None), call.argument, distinct=call.distinct)
            reads.append((name, name))
            continue
        if call.function == "count" and call.argument is None and call.filter is None:
            reads.append((ROWS, ROWS))
            continue
        count = keep("count", call, call.argument, distinct=call.distinct)
        value = count
        if call.function in MOMENTS:
            kinds = ("squares", "doubles")
            squares, total = (keep(kind, call, call.argument, distinct=call.distinct) for kind in kinds)
            reads.append((squares, count, total))
            continue
        if call.function in ("sum", "avg"):
            assert call.argument is not None
            root = types[call.argument].name
            kind = "integers" if root in _INTEGERS else "doubles" if root in _FLOATS else "decimals"
            value = keep(kind, call, call.argument, distinct=call.distinct)
        reads.append((value, count))
    group = tuple((name, arrow_type(types[name])) for name in node.group)
    return Accumulators(group, tuple(items.values()), node.calls, tuple(reads))


def add_rows(table: pa.Table, plan: Accumulators) -> pa.Table:
    """The partial result of signed rows: per group what they add. Columns of `plan.group` and `plan.values`."""
    weights = table.column(WEIGHT).to_numpy()
    if any(item.kind == "decimals" for item in plan.linear) and len(weights) and np.abs(weights).max() > 1:
        table = table.take(pa.array(np.repeat(np.arange(len(weights)), np.abs(weights))))
        weights = np.sign(np.repeat(weights, np.abs(weights)))
    columns: dict[str, Any] = {name: table.column(name) for name in plan.names}
    columns[ROWS] = pa.array(weights)
    doubles: dict[str, np.ndarray] = {}
    for item in plan.linear:
        taken = _taken(table, item)
        if item.kind == "count":
            columns[item.name] = pa.array(np.where(taken, weights, 0))
        elif item.kind == "integers":
            numbers = _numbers(table.column(item.argument), np.int64)
            columns[item.name] = pa.array(np.where(taken, numbers * weights, 0))
        elif item.kind in _EXACT:
            doubles[item.name] = np.where(taken, _numbers(table.column(item.argument), np.float64), 0.0)
        else:
            values = pc.if_else(pa.array(taken), table.column(item.argument), pa.scalar(None, item_type(table, item)))
            if item.kind == "decimals":
                values = values.cast(item.arrow)
                if len(weights) and weights.min() < 0:
                    values = pc.if_else(pa.array(weights < 0), pc.negate(values), values)
                values = pc.fill_null(values, pa.scalar(0, item.arrow))
            columns[item.name] = values
    return _merge(pa.table(columns), plan, plan.linear, doubles=doubles, weights=weights)


def item_type(table: pa.Table, item: Accumulator) -> pa.DataType:
    """The type of the column that an accumulator reads."""
    return table.schema.field(item.argument).type


def _taken(table: pa.Table, item: Accumulator) -> np.ndarray:
    """Return a mask of the rows that take part: their argument is not null, and the filter is true."""
    taken = table.column(WEIGHT).to_numpy() != 0
    if item.argument is not None and table.column(item.argument).null_count:
        taken = taken & pc.is_valid(table.column(item.argument)).to_numpy()
    if item.filter is not None:
        taken = taken & pc.fill_null(table.column(item.filter), False).to_numpy()
    return taken


def _numbers(column: pa.ChunkedArray, kind: Any) -> np.ndarray:
    filled = pc.fill_null(column, 0) if column.null_count else column
    return filled.to_numpy().astype(kind)


def merge_groups(table: pa.Table, plan: Accumulators) -> pa.Table:
    """Partial results, of which a group may have several, as one per group."""
    return _merge(table, plan, plan.items)


def _merge(
    table: pa.Table,
    plan: Accumulators,
    items: Sequence[Accumulator],
    *,
    doubles: dict[str, np.ndarray] | None = None,
    weights: np.ndarray | None = None,
) -> pa.Table:
    if not table.num_rows:
        return plan.complete(table) if doubles is None else _without_rows(plan)
    for item in items:
        if item.kind == "decimals":
            table = _with_room(table, item.name)
    sums: list[tuple[str, str]] = [(ROWS, "sum")]
    apart = [item for item in items if item.kind in _EXACT or item.is_told_whole]
    for item in items:
        if item.kind in ("count", "integers", "decimals"):
            sums.append((item.name, "sum"))
        elif item.kind in ("min", "max"):
            sums.append((item.name, item.kind))
            if item.kind == "max" and pa.types.is_floating(table.schema.field(item.name).type):
                table = table.append_column(f"{item.name}_nan", pc.is_nan(table.column(item.name)))
                sums.append((f"{item.name}_nan", "any"))
    names = plan.names
    plain = bool(names) and not apart and not any(pa.types.is_nested(kind) for _, kind in plan.group)
    if plain:
        for name, kind in plan.group:
            if pa.types.is_floating(kind):
                table = table.set_column(table.schema.get_field_index(name), name, normal(table.column(name)))
        merged = table.group_by(names, use_threads=False).aggregate(sums)
        columns = {name: merged.column(name) for name in names}
        columns |= _merged(merged, sums)
        return plan.complete(pa.table(columns))
    (codes,) = code_rows([table], [names]) if names else [np.zeros(table.num_rows, dtype=np.int64)]
    count = int(codes.max()) + 1
    merged = table.append_column(_CODE, pa.array(codes)).group_by(_CODE, use_threads=False).aggregate(sums)
    merged = merged.take(pa.array(np.argsort(merged.column(_CODE).to_numpy(), kind="stable")))
    first = first_rows(codes, count)
    columns = {name: table.column(name).take(pa.array(first)) for name in names}
    columns |= _merged(merged, sums)
    for item in apart:
        if item.is_told_whole:
            columns |= _told_last(table, item, codes, first)
        elif doubles is not None:
            assert weights is not None
            squared = item.kind == "squares"
            sums_of = exact.sum_groups(doubles[item.name], weights, codes, count, squared=squared)
            columns[item.name] = pa.array(sums_of, pa.binary())
        else:
            texts = table.column(item.name).to_pylist()
            columns[item.name] = pa.array(exact.add_groups(texts, codes, count), pa.binary())
    return plan.complete(pa.table(columns))


def _with_room(table: pa.Table, name: str) -> pa.Table:
    """A table whose decimals of a column can be added up: sums of 128 bits would run over in silence."""
    column = table.column(name)
    ends = [abs(value) for value in pc.min_max(column).as_py().values() if value is not None]
    if sum(ends) * table.num_rows < Decimal(10) ** (column.type.precision - column.type.scale):
        return table
    wide = column.cast(pa.decimal256(76, column.type.scale))
    return table.set_column(table.schema.get_field_index(name), name, wide)


def _merged(merged: pa.Table, sums: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The sums, least and greatest values of groups by their names.

    Raises:
        ChangelogError: a sum of decimals has more digits than decimals have.
    """
    found: dict[str, Any] = {}
    for name, how in sums:
        column = merged.column(f"{name}_{how}")
        if how == "any":
            found[name.removesuffix("_nan")] = with_nan(found[name.removesuffix("_nan")], column)
        elif pa.types.is_decimal256(column.type):
            try:
                found[name] = column.cast(pa.decimal128(38, column.type.scale))
            except pa.ArrowInvalid:
                raise ChangelogError(
                    f"a SUM or AVG of decimals with {column.type.scale} digits behind the point has more than 38 digits"
                    " in all, which no DECIMAL holds: sum CAST(... AS DOUBLE), or fewer digits, and run the job"
                    " 'rebuild'"
                ) from None
        else:
            found[name] = column
    return found


def with_nan(greatest: Any, has_nan: Any) -> Any:
    """The greatest doubles of groups: NaN, which Arrow leaves out, is greater than every number, as in Java."""
    return pc.if_else(pc.fill_null(has_nan, False), pa.scalar(math.nan, greatest.type), greatest)


def _told_last(table: pa.Table, item: Accumulator, codes: np.ndarray, first: np.ndarray) -> dict[str, Any]:
    """The value of the last row per group that tells one."""
    told = pc.fill_null(table.column(f"{item.name}_told"), False).to_numpy()
    chosen = first.copy()
    positions = np.flatnonzero(told)
    chosen[codes[positions]] = positions
    taken = pa.array(chosen)
    return {name: table.column(name).take(taken) for name, _ in item.columns}


def _without_rows(plan: Accumulators) -> pa.Table:
    fields = [pa.field(name, kind) for name, kind in (*plan.group, *plan.values)]
    return pa.schema(fields).empty_table()


def results_of(table: pa.Table, plan: Accumulators) -> pa.Table:
    """The columns of the GROUP BY's result, of merged groups."""
    columns: dict[str, Any] = {name: table.column(name) for name in plan.names}
    kinds = {item.name: item for item in plan.items}
    for call, (value, count, *more) in zip(plan.calls, plan.reads, strict=True):
        if call.function in MOMENTS:
            columns[call.name] = _moment(call, table.column(value), table.column(more[0]), table.column(count))
        elif call.function in ("min", "max"):
            columns[call.name] = table.column(value)
        elif call.function in TEXTS:
            columns[call.name] = _text(call, table.column(value))
        elif call.function in ("array_agg", "collect"):
            nulls = pc.subtract(table.column(more[0]), table.column(count)) if more else None
            columns[call.name] = _collection(call, table.column(value), nulls)
        elif call.function == "percentile":
            columns[call.name] = percentiles(table.column(value), call)
        elif call.function == "count":
            columns[call.name] = table.column(count)
        else:
            columns[call.name] = _quotient(call, kinds[value], table.column(value), table.column(count))
    return pa.table(columns) if columns else pa.table({"_": pa.nulls(table.num_rows)}).select([])


def _text(call: Call, joined: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts put together, with what stands around them.

    Raises:
        ChangelogError: a JSON object has a key twice.
    """
    around = TEXTS[call.function]
    if around is None:
        return joined
    start, end = around
    found = pc.binary_join_element_wise(start, pc.fill_null(joined, ""), end, "")
    if call.function == "json_objectagg":
        for text in found.to_pylist():
            json.loads(text, object_pairs_hook=_once)
    return found


def _once(members: list[tuple[str, object]]) -> None:
    """Refuses members of an object of which two have one name."""
    names = [name for name, _ in members]
    if len(set(names)) < len(names):
        raise ChangelogError(
            "JSON_OBJECTAGG has several values of one key in a group, and a JSON object has one: choose one row of each"
            " key by ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) with WHERE rn = 1, and run the job 'rebuild'"
        )


def _collection(call: Call, lists: pa.ChunkedArray, nulls: pa.ChunkedArray | None) -> pa.Array:
    """The values of groups as arrays, nulls first, or as multisets; an array without elements is null."""
    kind = arrow_type(call.type)
    if call.function == "collect":
        return pa.array([list(Counter(values or ()).items()) for values in lists.to_pylist()], kind)
    if nulls is None or not pc.any(pc.greater(nulls, 0)).as_py():
        return lists.cast(kind)
    most = 1 if call.distinct else None
    pairs = zip(lists.to_pylist(), nulls.to_pylist(), strict=True)
    return pa.array([[None] * min(count, most or count) + (values or []) or None for values, count in pairs], kind)


def _moment(call: Call, squares: pa.ChunkedArray, sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """A variance, or its root: null where there are no values, or not two of them for that of a sample."""
    root, sample = MOMENTS[call.function]
    found = [
        exact.variance(second, first, count, sample=sample)
        for second, first, count in zip(squares.to_pylist(), sums.to_pylist(), counts.to_pylist(), strict=True)
    ]
    shown = [None if item is None else math.sqrt(item) for item in found] if root else found
    return pa.array(shown, pa.float64()).cast(arrow_type(call.type), safe=False)


def _quotient(call: Call, item: Accumulator, sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """SUM or AVG: null where there are no values."""
    numbers = counts.to_numpy()
    kind = arrow_type(call.type)
    if item.kind == "doubles":
        pairs = zip(sums.to_pylist(), numbers.tolist(), strict=True)
        divided = [exact.mean(text, n if call.function == "avg" else 1) if n else None for text, n in pairs]
        return pa.array(divided, pa.float64()).cast(kind, safe=False)
    if item.kind == "integers":
        totals = sums.to_numpy()
        if call.function == "avg":  # towards zero, as Java divides
            safe = np.where(numbers == 0, 1, numbers)
            totals = np.where(totals < 0, -(-totals // safe), totals // safe)
        # Sums of small integers overflow as they do in Flink, whose result has the type of the argument.
        return pa.array(totals.astype(kind.to_pandas_dtype()), kind, mask=numbers == 0)
    if call.function == "sum":
        return pc.if_else(pa.array(numbers != 0), sums, pa.scalar(None, sums.type)).cast(kind)
    unit = Decimal(1).scaleb(-kind.scale)
    beyond = Decimal(1).scaleb(kind.precision - kind.scale)
    pairs = zip(sums.to_pylist(), numbers.tolist(), strict=True)
    means = [_DIVISION.quantize(_DIVISION.divide(total, n), unit) if n else None for total, n in pairs]
    # What the type of an AVG does not hold is null, as in Flink.
    return pa.array([None if mean is None or mean.copy_abs() >= beyond else mean for mean in means], kind)
