"""Row-by-row steps between operators, in Arrow: projections, filters and windows.

An expression that Arrow cannot evaluate exactly as Flink has no native form; `tasks` hands such steps to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Expand, Expression, Field, Native, Unnest, Watermark, Window, expression_at
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.calendar_values import FORMS as CALENDAR
from upsert_platform.engine.decimal_values import FORMS as DECIMALS
from upsert_platform.engine.letter_values import FORMS as LETTERS
from upsert_platform.engine.number_values import FORMS as NUMBERS
from upsert_platform.engine.panes import rows_of_panes
from upsert_platform.engine.quotient_values import FORMS as QUOTIENTS
from upsert_platform.engine.rounded_values import FORMS as ROUNDED
from upsert_platform.engine.text_casts import FORMS as CASTS
from upsert_platform.engine.text_values import FORMS as TEXTS
from upsert_platform.engine.time_readings import FORMS as READINGS
from upsert_platform.engine.time_values import FORMS as TIMES
from upsert_platform.engine.unnest import unnested

WEIGHT: Final = internal("w")
"""BIGINT: how often a row was added, less how often it was taken back."""

_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
    "and": pc.and_kleene, "or": pc.or_kleene, "+": pc.add, "-": pc.subtract, "*": pc.multiply,
}  # fmt: skip
_FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    **NUMBERS,
    **DECIMALS,
    **TIMES,
    **TEXTS,
    **LETTERS,
    **QUOTIENTS,
    **ROUNDED,
    **CALENDAR,
    **CASTS,
    **READINGS,
}
_TAKE_SCALARS: Final = frozenset({*_BINARY, "%", "div", "pmod", "of doubles", "in", "join", "quotient of doubles"})
"""Operators that take literals as they are, beside columns."""
_COSTLY: Final = frozenset(
    {"lower", "upper", "split", "like", "group", "fit", "replace", "join", "date part", "date format", "call"}
    | {"words", "pad", "quotient", "rest of decimals", "round", "months later", *CASTS, *READINGS}
)


@dataclass(frozen=True, slots=True)
class ProjectStep:
    """Columns computed from each row; `WEIGHT` and the columns of `kept` stay beside them."""

    columns: tuple[tuple[str, Expression], ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilterStep:
    """The rows for which a condition is true.

    Attributes:
        into: a BOOLEAN column that becomes false for the other rows, which then stay.
    """

    condition: Expression
    into: str | None = None


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Adds the columns of a window table function.

    Attributes:
        closed: windows that end then, or before, take no rows any more; microseconds since 1970. None: all do. Of a
            `Watermark` the watermark itself; None: there is none yet.
    """

    window: Window
    closed: int | None = None


@dataclass(slots=True)
class Tally:
    """The counts of steps.

    Attributes:
        late: rows that were left out of a window since it is closed; one that falls into several counts for each.
        times: name of a window's end to the greatest event time per partition.
    """

    late: int = 0
    times: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """Copies rows for each grouping of GROUPING SETS."""

    expand: Expand


@dataclass(frozen=True, slots=True)
class UnnestStep:
    """Repeats rows for the elements of a collection."""

    unnest: Unnest


Step = ProjectStep | FilterStep | WindowStep | ExpandStep | UnnestStep


def is_native(step: Step) -> bool:
    """Return whether Arrow can take the step."""
    match step:
        case ProjectStep():
            return all(expression.arrow is not None for _, expression in step.columns)
        case FilterStep():
            return step.condition.arrow is not None
    return True


def steps_at(steps: Sequence[Step], now: int) -> tuple[Step, ...]:
    """Steps whose functions of the clock give a time, in milliseconds since 1970."""
    return tuple(_step_at(step, now) for step in steps)


def _step_at(step: Step, now: int) -> Step:
    match step:
        case ProjectStep():
            return replace(step, columns=tuple((name, expression_at(item, now)) for name, item in step.columns))
        case FilterStep():
            return replace(step, condition=expression_at(step.condition, now))
    return step  # the others read columns


def take_steps(table: pa.Table, steps: Sequence[Step], tally: Tally, *, counts: bool = False) -> pa.Table:
    """Takes native steps over rows, and counts what comes too late.

    Args:
        counts: whoever takes the rows counts equal ones by their weights, so that they may come as one.
    """
    for at, step in enumerate(steps):
        match step:
            case ProjectStep():
                table = _project(table, step)
            case FilterStep():
                assert step.condition.arrow is not None
                condition = evaluate(step.condition.arrow, table)
                if step.into is None:
                    table = table.filter(condition)
                else:
                    both = pc.and_(table.column(step.into), pc.fill_null(condition, False))
                    table = table.set_column(table.schema.get_field_index(step.into), step.into, both)
            case WindowStep():
                panes = _panes(table, step, steps[at + 1 :]) if counts else None
                table = _windows(table if panes is None else panes, step, tally, together=panes is not None)
            case UnnestStep():
                table = unnested(table, step.unnest)
            case ExpandStep():
                table = pa.concat_tables([_project(table, ProjectStep(columns)) for columns in step.expand.sets])
    return table


def _project(table: pa.Table, step: ProjectStep) -> pa.Table:
    columns: dict[str, Any] = {}
    known: dict[Native, Any] = {}
    for name, expression in step.columns:
        assert expression.arrow is not None
        columns[name] = evaluate(expression.arrow, table, known).cast(arrow_type(expression.type))
    for name in (*step.kept, WEIGHT):
        if name in table.column_names:
            columns[name] = table.column(name)
    return pa.table(columns)


def evaluate(native: Native, table: pa.Table, known: dict[Native, Any] | None = None) -> Any:
    """The values of an expression, one per row.

    Args:
        known: values of costly parts, of the same table: those that are here are not computed again, others are added.
    """
    if known is not None and native[0] in _COSTLY:
        if native not in known:
            known[native] = _evaluated(native, table, known)
        return known[native]
    return _evaluated(native, table, known)


def _evaluated(native: Native, table: pa.Table, known: dict[Native, Any] | None) -> Any:
    operator, *operands = native
    if operator == "column":
        return table.column(operands[0])
    if operator == "literal":
        return pa.chunked_array([pa.repeat(_scalar(native), table.num_rows)])
    given = [operand for operand in operands if isinstance(operand, tuple)]
    scalars = operator in _TAKE_SCALARS and any(operand[0] != "literal" for operand in given)
    values = [
        _scalar(operand) if scalars and operand[0] == "literal" else evaluate(operand, table, known)
        for operand in given
    ]
    if operator in _BINARY:
        return _BINARY[operator](*values)
    if operator in _FORMS:
        return _FORMS[operator](*values, *(operand for operand in operands if not isinstance(operand, tuple)))
    match operator:
        case "shift":
            return pc.add(values[0], pa.scalar(operands[1], pa.duration("us")))
        case "not":
            return pc.invert(values[0])
        case "is null":
            return pc.is_null(values[0])
        case "or zero":
            return pc.fill_null(values[0], 0)
        case "is true":
            return pc.fill_null(values[0], False)
        case "if":
            return pc.if_else(pc.fill_null(values[0], False), values[1], pa.scalar(None, values[1].type))
        case "field":
            return pc.struct_field(values[0], operands[1])
        case "case":
            *branches, other = values
            met = [pc.fill_null(condition, False) for condition in branches[::2]]
            return pc.case_when(pc.make_struct(*met), *branches[1::2], other)
        case "coalesce":
            return pc.coalesce(*values)
        case "widen" | "decimal":
            return values[0].cast(arrow_type(operands[1]))
        case "call":
            return operands[0].of_columns(*values)
    raise AssertionError(operator)


def _scalar(literal: Native) -> pa.Scalar:
    _, value, kind = literal
    return pa.scalar(value, arrow_type(kind))


def parts_read(natives: Iterable[Native | None], whole: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Columns of type ROW of which expressions read single fields alone, with the names of these.

    Args:
        whole: columns that are read as they are.
    """
    all_of = set(whole)
    parts: dict[str, set[str]] = {}

    def note(native: Native) -> None:
        operator, *operands = native
        if operator == "column":
            all_of.add(operands[0])
        elif operator == "field" and operands[0][0] == "column":
            parts.setdefault(operands[0][1], set()).add(operands[1])
        elif operator != "literal":
            for operand in operands:
                if isinstance(operand, tuple):
                    note(operand)

    for native in natives:
        if native is not None:
            note(native)
    return {name: tuple(sorted(found)) for name, found in parts.items() if name not in all_of}


def fields_read(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """As `parts_read`, of native steps."""
    natives: list[Native | None] = []
    for step in steps:
        if isinstance(step, FilterStep):
            natives.append(step.condition.arrow)
        elif isinstance(step, ProjectStep):
            natives += [expression.arrow for _, expression in step.columns]
            return parts_read(natives, step.kept)
        else:
            break
    return {}  # all columns stay


def _panes(table: pa.Table, step: WindowStep, later: Sequence[Step]) -> pa.Table | None:
    """The rows of `rows_of_panes`, where a projection follows, which tells what is read of them."""
    if isinstance(step.window, Watermark) or not later or not isinstance(later[0], ProjectStep) or later[0].kept:
        return None
    read = {name for _, expression in later[0].columns for name in columns_of(expression.arrow)}
    return rows_of_panes(table, step.window, sorted(read - set(step.window.names)), weight=WEIGHT)


def columns_of(native: Native | None) -> Iterator[str]:
    """The names of columns in an expression."""
    operator, *operands = native or ("literal",)
    if operator == "column":
        yield operands[0]
    elif operator != "literal":
        for operand in operands:
            if isinstance(operand, tuple):
                yield from columns_of(operand)


def _windows(table: pa.Table, step_of: WindowStep, tally: Tally, *, together: bool = False) -> pa.Table:
    """Rows with the windows that they fall into; a row without a time falls into none. Or with a watermark.

    Args:
        together: a row stands for as many added ones as its weight is.
    """
    window = step_of.window
    if isinstance(window, Watermark):
        (added,) = window.added
        stands = pa.scalar(step_of.closed, pa.int64()).cast(arrow_type(added.type))
        return table.append_column(added.name, pa.repeat(stands, table.num_rows))
    at = table.schema.get_field_index(window.time)
    table = table.filter(pc.is_valid(table.column(at)))
    kind = table.column(at).type
    times = table.column(at).cast(pa.int64()).to_numpy()
    if window.kind == "cumulate":
        base = times - (times - window.offset) % window.size
        count = window.size // window.step
        nth = (times - base) // window.step
        copies = count - nth
        chosen = np.repeat(np.arange(len(times)), copies)
        within = np.arange(len(chosen)) - np.repeat(np.cumsum(copies) - copies, copies)
        starts = base[chosen]
        ends = starts + (nth[chosen] + within + 1) * window.step
    else:
        step = window.step
        last = times - (times - window.offset) % step
        most = -(-window.size // step)
        chosen = np.repeat(np.arange(len(times)), most)
        starts = last[chosen] - np.tile(np.arange(most), len(times)) * step
        ends = starts + window.size
        inside = times[chosen] < ends
        chosen, starts, ends = chosen[inside], starts[inside], ends[inside]
    if step_of.closed is not None:
        open_still = ends > step_of.closed
        left = chosen[~open_still]
        tally.late += int(table.column(WEIGHT).to_numpy()[left].sum()) if together else len(left)
        chosen, starts, ends = chosen[open_still], starts[open_still], ends[open_still]
    wide = table.take(pa.array(chosen))
    plain = pa.timestamp("us")
    for name, values, of in zip(window.names, (starts, ends, ends - 1000), (plain, plain, kind), strict=True):
        wide = wide.append_column(name, pa.array(values).cast(of))
    return wide


def fields_after(fields: Sequence[Field], steps: Sequence[Step]) -> tuple[Field, ...]:
    """The columns that rows have after steps, without `WEIGHT` and kept ones."""
    found = tuple(fields)
    for step in steps:
        if isinstance(step, ProjectStep):
            found = tuple(Field(name, expression.type) for name, expression in step.columns)
        elif isinstance(step, WindowStep):
            found = (*found, *step.window.added)
        elif isinstance(step, UnnestStep):
            found = (*found, *step.unnest.added)
        elif isinstance(step, ExpandStep):
            found = step.expand.fields
    return found
