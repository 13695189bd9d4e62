"""Functions of JSON. Reading it is done in Python workers (`json_reading`), writing it by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.casts import cast, to_text
from upsert_platform.sql.functions.signatures import FunctionFault, Overloads, argument
from upsert_platform.sql.json_path import PathFault, read_path
from upsert_platform.sql.rendered import BOOLEAN, DOUBLE, NUMBERS, STRING, STRINGS, Rendered, made, quote_text

VALUE, QUERY, EXISTS, CHECK = "flink_json_value", "flink_json_query", "flink_json_exists", "flink_is_json"
"""Names under which `evaluation` registers the functions of `json_reading`."""
_RETURNING: Final = (TypeName.INT, TypeName.BIGINT, TypeName.DOUBLE, TypeName.BOOLEAN)


def _path(value: Rendered, name: str) -> str:
    if value.constant is None:
        raise FunctionFault(f"{name} takes JSON and a path in quotes, such as '$.name'")
    try:
        read_path(value.constant)
    except PathFault as fault:
        raise FunctionFault(f"{name}: {fault}") from None
    return quote_text(value.constant)


def json_value(
    arguments: Sequence[Rendered], clauses: Mapping[str, Rendered | str], to: LogicalType | None
) -> Rendered:
    """JSON_VALUE.

    Args:
        clauses: ``EMPTY`` and ``ERROR`` to NULL, ERROR or a default.
        to: the type after RETURNING.

    Raises:
        FunctionFault: the path or the type is none that is supported.
    """
    if len(arguments) != 2:
        raise FunctionFault("JSON_VALUE takes JSON and a path in quotes, such as '$.name'")
    value, path = argument("s", arguments[0], "JSON_VALUE"), _path(arguments[1], "JSON_VALUE")
    kind = to or STRING
    if kind.name not in (*STRINGS, *_RETURNING):
        raise FunctionFault(f"JSON_VALUE ... RETURNING gives STRING, INT, BIGINT, DOUBLE or BOOLEAN, not {kind}")
    found = f"{VALUE}({value.sql}, {path})"
    text = f"{found}.value"
    result = cast(Rendered(text, STRING, simple=True), kind, safe=True).sql
    defaults: list[Rendered] = []
    cases, failures = [], []
    for name in ("EMPTY", "ERROR"):
        chosen = clauses.get(name, "NULL")
        condition = f"{found}.fate = '{name}'"
        if isinstance(chosen, Rendered):
            defaults.append(cast(chosen, kind))
            cases.append(f"WHEN {condition} THEN {defaults[-1].sql}")
        elif chosen == "ERROR":
            failures.append(f"WHEN {condition} THEN 'JSON_VALUE: {name} of a path'")
    sql = f"CASE {' '.join(cases)} ELSE {result} END" if cases else result
    fails = f"CASE {' '.join(failures)} END" if failures else None
    return made(sql, kind, value, *defaults, simple=not cases, fails=fails)


def json_query(arguments: Sequence[Rendered], wrapper: str, clauses: Mapping[str, str]) -> Rendered:
    """JSON_QUERY.

    Args:
        wrapper: ``WITHOUT``, ``CONDITIONAL`` or ``UNCONDITIONAL``.
        clauses: ``EMPTY`` and ``ERROR`` to NULL, ERROR, ``[]`` or ``{}``.
    """
    if len(arguments) != 2:
        raise FunctionFault("JSON_QUERY takes JSON and a path in quotes, such as '$.name'")
    value, path = argument("s", arguments[0], "JSON_QUERY"), _path(arguments[1], "JSON_QUERY")
    found = f"{QUERY}({value.sql}, {path}, {quote_text(wrapper)})"
    cases, failures = [], []
    for name in ("EMPTY", "ERROR"):
        chosen, condition = clauses.get(name, "NULL"), f"{found}.fate = '{name}'"
        if chosen == "ERROR":
            failures.append(f"WHEN {condition} THEN 'JSON_QUERY: {name} of a path'")
        elif chosen != "NULL":
            cases.append(f"WHEN {condition} THEN {quote_text(chosen)}")
    sql = f"CASE {' '.join(cases)} ELSE {found}.value END" if cases else f"{found}.value"
    fails = f"CASE {' '.join(failures)} END" if failures else None
    return replace(made(sql, STRING, value, simple=not cases, fails=fails), json=True)


def json_exists(arguments: Sequence[Rendered], on_error: str) -> Rendered:
    """JSON_EXISTS.

    Args:
        on_error: ``TRUE``, ``FALSE``, ``UNKNOWN`` or ``ERROR``.
    """
    if len(arguments) != 2:
        raise FunctionFault("JSON_EXISTS takes JSON and a path in quotes, such as '$.name'")
    value, path = argument("s", arguments[0], "JSON_EXISTS"), _path(arguments[1], "JSON_EXISTS")
    found = f"{EXISTS}({value.sql}, {path})"
    chosen = {"TRUE": "TRUE", "FALSE": "FALSE"}.get(on_error, "NULL")
    sql = f"CASE {found} WHEN 'TRUE' THEN TRUE WHEN 'FALSE' THEN FALSE WHEN 'ERROR' THEN {chosen} END"
    fails = f"CASE {found} WHEN 'ERROR' THEN 'JSON_EXISTS: ERROR of a path' END" if on_error == "ERROR" else None
    return made(sql, BOOLEAN, value, simple=False, fails=fails)


def is_json(value: Rendered, kind: str) -> Rendered:
    """IS JSON VALUE, SCALAR, ARRAY or OBJECT; a null is not."""
    value = argument("s", value, "IS JSON")
    return made(f"COALESCE({CHECK}({value.sql}, '{kind}'), FALSE)", BOOLEAN, value)


def as_json(value: Rendered, name: str) -> Rendered:
    """The JSON text of a value; null for a null.

    Raises:
        FunctionFault: there is none for its type.
    """
    if value.json:
        return value
    if value.type is None:
        return Rendered("CAST(NULL AS STRING)", STRING, simple=True)
    if value.root in STRINGS:
        quoted = f"TO_JSON(ARRAY({value.sql}))"
        return made(
            f"CASE WHEN {value.wrapped} IS NOT NULL THEN SUBSTRING({quoted}, 2, CHAR_LENGTH({quoted}) - 2) END",
            STRING, value, simple=False,
        )  # fmt: skip
    if value.root is TypeName.BOOLEAN:
        return made(f"CAST({value.sql} AS STRING)", STRING, value)
    if value.root in (TypeName.FLOAT, TypeName.DOUBLE):
        text = to_text(cast(value, DOUBLE).sql, DOUBLE)
        return made(f"REGEXP_REPLACE({text}, 'E([0-9])', 'E+$1')", STRING, value, simple=False)
    if value.root in NUMBERS:
        return made(to_text(value.sql, value.type), STRING, value, simple=False)
    if value.root is TypeName.DATE:
        return made(f"CONCAT('\"', {to_text(value.sql, value.type)}, '\"')", STRING, value)
    if value.root in (TypeName.ARRAY, TypeName.MAP, TypeName.ROW) and _is_plain(value.type):
        return made(f"TO_JSON({value.sql}, MAP('ignoreNullFields', 'false'))", STRING, value)
    raise FunctionFault(f"{name} takes texts, numbers, booleans, dates and collections of them, not {value.type}")


def _is_plain(kind: LogicalType) -> bool:
    inner = [part for part in (kind.element, kind.key, *(field.type for field in kind.fields)) if part is not None]
    if inner:
        return all(_is_plain(part) for part in inner)
    return kind.name in (*STRINGS, *NUMBERS, TypeName.BOOLEAN)


def json_object(entries: Sequence[tuple[Rendered, Rendered]], *, absent: bool) -> Rendered:
    """JSON_OBJECT: entries in the order of their names, as Flink writes them.

    Args:
        absent: a null leaves its entry out.
    """
    named: dict[str, Rendered] = {}
    for key, value in entries:
        if key.constant is None or key.root not in STRINGS:
            raise FunctionFault("JSON_OBJECT takes its keys as texts in quotes")
        named[key.constant] = as_json(value, "JSON_OBJECT")
    parts = []
    for name in sorted(named):
        quoted = f"CONCAT({as_json(Rendered(quote_text(name), STRING, simple=True), '').wrapped}, ':')"
        written = named[name].wrapped
        parts.append(f"CONCAT({quoted}, {written})" if absent else f"CONCAT({quoted}, COALESCE({written}, 'null'))")
    inner = f"CONCAT_WS(',', {', '.join(parts)})" if parts else "''"
    return replace(made(f"CONCAT('{{', {inner}, '}}')", STRING, *named.values()), json=True)


def json_array(values: Sequence[Rendered], *, absent: bool) -> Rendered:
    """JSON_ARRAY.

    Args:
        absent: a null is left out.
    """
    written = [as_json(value, "JSON_ARRAY") for value in values]
    parts = [item.sql if absent else f"COALESCE({item.sql}, 'null')" for item in written]
    inner = f"CONCAT_WS(',', {', '.join(parts)})" if parts else "''"
    return replace(made(f"CONCAT('[', {inner}, ']')", STRING, *written), json=True)


def _json_string(arguments: Sequence[Rendered]) -> Rendered:
    found = as_json(arguments[0], "JSON_STRING")
    return replace(found, json=False)


FUNCTIONS: Final[dict[str, Overloads]] = {"JSON_STRING": {1: _json_string}}
