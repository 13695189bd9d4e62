"""Functions that choose among values, all brought to one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.casts import cast
from upsert_platform.sql.functions.signatures import ANY, FunctionFault, Handler, Overloads
from upsert_platform.sql.numbers import common_type
from upsert_platform.sql.rendered import BOOLEAN, NUMBERS, STRING, Rendered, first_failure, made, quote_text


def alike(values: Sequence[Rendered], name: str) -> list[Rendered]:
    """Values in their common type.

    Raises:
        FunctionFault: they have none.
    """
    kinds = [value.type for value in values if value.type is not None]
    if not kinds:
        raise FunctionFault(f"{name} of nothing but NULL has no type: write CAST(NULL AS ...)")
    kind = common_type(kinds)
    if kind is None:
        shown = ", ".join(dict.fromkeys(str(kind) for kind in kinds))
        raise FunctionFault(f"{name} takes values of one type, not {shown}: write CASTs")
    return [as_type(value, kind) for value in values]


def as_type(value: Rendered, kind: LogicalType) -> Rendered:
    """A value in the common type; a text is not cut or filled up for it."""
    return cast(value, kind, implicit=kind.name is not TypeName.DECIMAL)


def _coalesce(name: str) -> Handler:
    def render(arguments: Sequence[Rendered]) -> Rendered:
        if not arguments:
            raise FunctionFault(f"{name} takes at least one value")
        given = alike(arguments, name)
        found = made(f"COALESCE({', '.join(item.sql for item in given)})", given[0].type, *given)
        return replace(found, fails=guarded([(f"{item.wrapped} IS NULL", item.fails) for item in given]))

    return render


def guarded(steps: Sequence[tuple[str, str | None]]) -> str | None:
    """The failure of values that are looked at one after the other, the next one while a condition holds.

    Args:
        steps: condition under which the following ones are looked at, and the failure of this one.
    """
    if not steps:
        return None
    (condition, fails), rest = steps[0], guarded(steps[1:])
    return first_failure(fails, f"CASE WHEN {condition} THEN {rest} END" if rest else None)


def choose(branches: Sequence[tuple[Rendered, Rendered]], default: Rendered | None) -> Rendered:
    """CASE: of conditions, each with its result; a branch that is not taken does not fail."""
    otherwise = default if default is not None else Rendered("NULL", simple=True)
    results = alike([*(result for _, result in branches), otherwise], "CASE")
    whens = " ".join(
        f"WHEN {condition.sql} THEN {result.sql}" for (condition, _), result in zip(branches, results[:-1], strict=True)
    )
    ending = f" ELSE {results[-1].sql}" if default is not None else ""
    fails = results[-1].fails
    for (condition, _), result in reversed(list(zip(branches, results[:-1], strict=True))):
        if fails or result.fails:
            chosen = f"CASE WHEN {condition.sql} THEN {result.fails or 'NULL'} ELSE {fails or 'NULL'} END"
            fails = first_failure(condition.fails, chosen)
        else:
            fails = condition.fails
    pieces = [*(condition for condition, _ in branches), *results]
    kind = results[0].type
    assert kind is not None
    found = made(f"CASE {whens}{ending} END", replace(kind, nullable=True), *pieces, simple=False)
    return replace(found, fails=fails)


def condition(value: Rendered, name: str) -> Rendered:
    """A value that is true or false.

    Raises:
        FunctionFault: it is something else.
    """
    if value.type is None:
        return cast(value, BOOLEAN)
    if value.root is not TypeName.BOOLEAN:
        raise FunctionFault(f"{name} takes a condition, not {value.type}")
    return value


def _if(arguments: Sequence[Rendered]) -> Rendered:
    return choose([(condition(arguments[0], "IF"), arguments[1])], arguments[2])


def _nullif(arguments: Sequence[Rendered]) -> Rendered:
    value, other = arguments
    if value.type is None:
        raise FunctionFault("NULLIF takes a value with a type, not NULL")
    alike([value, other], "NULLIF")
    sql = f"CASE WHEN {value.wrapped} = {other.wrapped} THEN NULL ELSE {value.sql} END"
    found = made(sql, replace(value.type, nullable=True), value, other, simple=False)
    zero = value.root in NUMBERS and other.constant is not None and float(other.constant) == 0
    return replace(found, never_zero=zero)


def _extreme(name: str) -> Handler:
    """GREATEST and LEAST: null as soon as one argument is, unlike in Spark."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        if not arguments:
            raise FunctionFault(f"{name} takes at least one value")
        kinds = {replace(item.type, nullable=True) for item in arguments if item.type is not None}
        decimals = any(kind.name is TypeName.DECIMAL for kind in kinds)
        if len(kinds) > 1 and decimals and all(kind.name in NUMBERS for kind in kinds):
            raise FunctionFault(f"{name} takes decimals of one type, as in Flink: write CAST(... AS DECIMAL(p, s))")
        given = alike(arguments, name)
        nulls = " OR ".join(f"{item.wrapped} IS NULL" for item in given)
        values = ", ".join(item.sql for item in given)
        call = f"{name}({values})" if len(given) > 1 else values
        return made(f"CASE WHEN {nulls} THEN NULL ELSE {call} END", given[0].type, *given, simple=False)

    return render


def _typeof(arguments: Sequence[Rendered]) -> Rendered:
    shown = str(arguments[0].type or "NULL")
    return made(quote_text(shown), STRING)


FUNCTIONS: Final[dict[str, Overloads]] = {
    "COALESCE": {ANY: _coalesce("COALESCE")},
    "IFNULL": {2: _coalesce("IFNULL")},
    "IF": {3: _if},
    "NULLIF": {2: _nullif},
    "GREATEST": {ANY: _extreme("GREATEST")},
    "LEAST": {ANY: _extreme("LEAST")},
    "TYPEOF": {1: _typeof},
}
