"""Checks `faker` and `datagen` tables, and binds each column to what makes its values."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Column, ColumnKind, Options, Table
from upsert_platform.core.options import Settings, nearest, option_fields, read_settings
from upsert_platform.core.types import TEXTS, LogicalType, TypeName
from upsert_platform.datagen.options import (
    DatagenField,
    DatagenSettings,
    FakerField,
    FakerSettings,
    GeneratedSettings,
)
from upsert_platform.datagen.providers import ExpressionError, read_expression

_FIELD: Final = re.compile(r"fields\.(.+)\.([a-z-]+)")
_WHOLE: Final = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16, TypeName.INT: 32, TypeName.BIGINT: 64}
_REAL: Final = (TypeName.FLOAT, TypeName.DOUBLE)
_TIMES: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, TypeName.DATE)
_TRUE: Final = {"true": True, "false": False}
_HEX: Final = "0123456789abcdef"

Make = Callable[[random.Random, int], Any]
"""The value of a column in the row of a number."""


@dataclass(frozen=True)
class GeneratedTable:
    """A table whose rows are made.

    Attributes:
        table: as declared, but computed columns are stored: what depends on the moment is evaluated once, with its row.
        makers: per column that is made, what makes its values.
        computed: columns that follow from those, by Spark SQL.
        rows: how many there are in all; None when every run makes more.
        per_run: how many a run makes then.
    """

    table: Table
    makers: Mapping[str, Make]
    computed: tuple[tuple[str, str], ...]
    rows: int | None
    per_run: int


def read_faker_table(table: Table) -> tuple[GeneratedTable | None, list[Problem]]:
    """Checks a table of connector `faker`."""
    return _Reader(table).read(FakerSettings, FakerField, _expression_maker)


def read_datagen_table(table: Table) -> tuple[GeneratedTable | None, list[Problem]]:
    """Checks a table of connector `datagen`."""
    return _Reader(table).read(DatagenSettings, DatagenField, _datagen_maker)


class _Reader:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.problems: list[Problem] = []

    def error(self, message: str, *, option: str | None = None) -> None:
        place = (self.table.options.location(option) if option else None) or self.table.location
        self.problems.append(Problem(f"table '{self.table.name}': {message}", place))

    def read(
        self, settings: type[GeneratedSettings], of_field: type[Settings], bind: Callable[[Column, Any], Make]
    ) -> tuple[GeneratedTable | None, list[Problem]]:
        table = self.table
        found, problems = read_settings(
            settings,
            table.options,
            subject=f"table '{table.name}'",
            location=table.location,
            ignore=lambda name: name.startswith("fields."),
        )
        self.problems += problems
        makers: dict[str, Make] = {}
        most: list[int] = []
        given = self._fields(of_field)
        for column in table.physical_columns:
            own = self._field(of_field, column, given.get(column.name, {}))
            if own is None:
                continue
            try:
                makers[column.name] = _with_nulls(bind(column, own), own.null_rate)
            except ExpressionError as error:
                name = f"fields.{column.name}.expression"
                self.error(f"column '{column.name}' {error}", option=name)
                continue
            if isinstance(own, DatagenField) and own.kind == "sequence" and own.start is not None:
                most.append((own.end or own.start) - own.start + 1)
        if table.primary_key:
            self.error("rows that are made have no PRIMARY KEY: none replaces another; declare it in the target")
        for column in table.columns:
            if column.kind is ColumnKind.METADATA:
                self.error(f"column '{column.name}': rows that are made have no metadata")
            elif column.kind is ColumnKind.COMPUTED and column.expression_type is None:
                self.error(f"computed column '{column.name}' needs a known type: write CAST(... AS type) around it")
        if found is None or any(problem.severity == "error" for problem in self.problems):
            return None, self.problems
        if found.number_of_rows is not None:
            most.append(found.number_of_rows)
        stored, computed = _stored(table)
        return GeneratedTable(
            stored, makers, computed, min(most) if most else None, found.rows_per_second
        ), self.problems

    def _fields(self, of_field: type[Settings]) -> dict[str, dict[str, str]]:
        """Options per column, by the name behind the column's."""
        given: dict[str, dict[str, str]] = {}
        names = [column.name for column in self.table.physical_columns]
        known = [name.removeprefix("fields.<column>.") for name in option_fields(of_field)]
        for name, value in self.table.options.items():
            if not name.startswith("fields."):
                continue
            match = _FIELD.fullmatch(name)
            column = match[1] if match else name.removeprefix("fields.")
            if match is None or column not in names:
                self.error(f"option '{name}' is of no column that is made{nearest(column, names)}", option=name)
            elif match[2] not in known:
                self.error(f"unknown option '{name}'{nearest(match[2], known)}", option=name)
            else:
                given.setdefault(column, {})[match[2]] = value
        return given

    def _field(self, of_field: type[Settings], column: Column, values: Mapping[str, str]) -> Any:
        places = {name: self.table.options.location(f"fields.{column.name}.{name}") for name in values}
        options = Options(
            {f"fields.<column>.{name}": value for name, value in values.items()},
            {f"fields.<column>.{name}": place for name, place in places.items() if place is not None},
        )
        found, problems = read_settings(
            of_field, options, subject=f"table '{self.table.name}'", location=self.table.location
        )
        self.problems += [
            replace(problem, message=problem.message.replace("<column>", column.name)) for problem in problems
        ]
        return found


def _stored(table: Table) -> tuple[Table, tuple[tuple[str, str], ...]]:
    """The table with computed columns as stored ones, and their expressions."""
    columns, computed = [], []
    for column in table.columns:
        if column.kind is ColumnKind.COMPUTED:
            assert column.expression is not None
            computed.append((column.name, column.expression))
            kind = column.expression_type
            columns.append(replace(column, kind=ColumnKind.PHYSICAL, type=kind, expression=None, expression_type=None))
        else:
            columns.append(column)
    return replace(table, columns=tuple(columns)), tuple(computed)


def _with_nulls(make: Make, rate: float) -> Make:
    if not rate:
        return make
    return lambda rng, number: None if rng.random() < rate else make(rng, number)


def _expression_maker(column: Column, settings: FakerField) -> Make:
    kind = _type_of(column)
    make = read_expression(settings.expression)
    read = _reader_of(kind)

    def made(rng: random.Random, number: int) -> Any:
        del number
        text = make(rng)
        try:
            return read(text)
        except (ValueError, InvalidOperation, KeyError):
            raise ExpressionError(f"is {kind}, and its expression made '{text}'") from None

    made(random.Random(0), 0)
    return made


def _type_of(column: Column) -> LogicalType:
    assert column.type is not None
    return column.type


def _reader_of(kind: LogicalType) -> Callable[[str], Any]:
    """Reads the text that an expression made as a value of the column's type."""
    name = kind.name
    if name in TEXTS:
        return str
    if name in _WHOLE:
        return int
    if name in _REAL:
        return float
    if name is TypeName.DECIMAL:
        unit = Decimal(1).scaleb(-(kind.scale or 0))
        return lambda text: Decimal(text).quantize(unit)
    if name is TypeName.BOOLEAN:
        return lambda text: _TRUE[text.lower()]
    if name is TypeName.DATE:
        return lambda text: date.fromisoformat(text[:10])
    if name is TypeName.TIME:
        return time.fromisoformat
    if name in _TIMES:
        zone = UTC if name is TypeName.TIMESTAMP_LTZ else None
        return lambda text: datetime.fromisoformat(text).replace(tzinfo=zone)
    raise ExpressionError(f"is {kind}, which an expression does not make")


def _datagen_maker(column: Column, settings: DatagenField) -> Make:
    kind = _type_of(column)
    name = kind.name
    if settings.kind == "sequence":
        return _sequence(kind, settings)
    if name in _WHOLE:
        edge = 1 << (_WHOLE[name] - 1)
        low = int(settings.min) if settings.min is not None else -edge
        high = int(settings.max) if settings.max is not None else edge - 1
        _check_order(low, high)
        return lambda rng, _: rng.randint(low, high)
    if name in _REAL or name is TypeName.DECIMAL:
        return _real(kind, settings)
    if name in (*TEXTS, TypeName.BYTES, TypeName.BINARY, TypeName.VARBINARY):
        return _text(kind, settings)
    if name is TypeName.BOOLEAN:
        return lambda rng, _: rng.random() < 0.5
    if name in _TIMES:
        past = settings.max_past or timedelta(0)

        def moment(rng: random.Random, _: int) -> Any:
            at = datetime.now(UTC) - rng.random() * past
            if name is TypeName.DATE:
                return at.date()
            return at if name is TypeName.TIMESTAMP_LTZ else at.replace(tzinfo=None)

        return moment
    raise ExpressionError(f"is {kind}, which datagen does not make here")


def _sequence(kind: LogicalType, settings: DatagenField) -> Make:
    start, end = settings.start, settings.end
    if start is None or end is None:
        raise ExpressionError("is a sequence: it needs 'start' and 'end'")
    _check_order(start, end)
    if kind.name in TEXTS:
        return lambda _, number: str(start + number)
    if kind.name in _WHOLE:
        return lambda _, number: start + number
    if kind.name in _REAL:
        return lambda _, number: float(start + number)
    raise ExpressionError(f"is {kind}: a sequence is made of whole numbers or texts")


def _real(kind: LogicalType, settings: DatagenField) -> Make:
    if kind.name is TypeName.DECIMAL:
        scale = kind.scale or 0
        whole = 10 ** ((kind.precision or 10) - scale)
        low = settings.min if settings.min is not None else Decimal(-whole + 1)
        high = settings.max if settings.max is not None else Decimal(whole - 1)
        _check_order(low, high)
        ends = int(low.scaleb(scale)), int(high.scaleb(scale))
        return lambda rng, _: Decimal(rng.randint(*ends)).scaleb(-scale)
    least = float(settings.min) if settings.min is not None else 0.0
    most = float(settings.max) if settings.max is not None else 1.0
    _check_order(least, most)
    return lambda rng, _: rng.uniform(least, most)


def _text(kind: LogicalType, settings: DatagenField) -> Make:
    most = min(settings.length, kind.length or settings.length)
    least = 1 if settings.var_len else most

    def text(rng: random.Random, _: int) -> str:
        return "".join(rng.choice(_HEX) for _ in range(rng.randint(min(least, most), most)))

    if kind.name in TEXTS:
        return text
    return lambda rng, number: text(rng, number).encode()


def _check_order(low: Any, high: Any) -> None:
    if high < low:
        raise ExpressionError(f"has no values: {high} is below {low}")
