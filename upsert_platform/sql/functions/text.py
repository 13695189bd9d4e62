"""Functions of texts. Positions count from 1, and characters are code points."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.functions.signatures import (
    ANY,
    FunctionFault,
    Handler,
    Overloads,
    argument,
    integer,
    overloads,
)
from upsert_platform.sql.rendered import (
    BOOLEAN,
    BYTES,
    INT,
    INTEGERS,
    STRING,
    Rendered,
    made,
    quote_text,
)

_WORDS: Final = quote_text("[0-9A-Za-z]+|[^0-9A-Za-z]+")
INITCAP: Final = (
    f"ARRAY_JOIN(TRANSFORM(REGEXP_EXTRACT_ALL({{0}}, {_WORDS}, 0), _w -> CASE WHEN _w RLIKE '^[0-9A-Za-z]'"
    " THEN CONCAT(UPPER(SUBSTRING(_w, 1, 1)), LOWER(SUBSTRING(_w, 2))) ELSE _w END), '')"
)
"""Words are of ASCII letters and digits; other characters stay as they are."""
_NUMBER: Final = quote_text(r"^\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*$")
_PLAIN: Final = re.compile("[A-Za-z0-9_-]+")
"""A text that is a pattern of itself."""
BEYOND: Final = quote_text(r"[^\x{10000}-\x{10FFFF}]")


def _characters(name: str, count: int) -> LogicalType:
    return LogicalType(TypeName.CHAR, length=count)


def _substring(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("s", arguments[0], "SUBSTRING")
    given = [argument("i", item, "SUBSTRING") for item in arguments[1:]]
    sql = f"SUBSTRING({', '.join(item.sql for item in (value, *given))})"
    start = given[0].wrapped
    guards = []
    if len(given) > 1 and (integer(given[1]) or 0) <= 0:
        guards.append(f"WHEN {given[1].wrapped} < 0 THEN NULL")
    if (integer(given[0]) or -1) < 0:
        guards.append(f"WHEN {start} < 0 AND CHAR_LENGTH({value.sql}) + {start} < 0 THEN ''")
    sql = f"CASE {' '.join(guards)} ELSE {sql} END" if guards else sql
    return made(sql, STRING, value, *given)


def _pad(name: str) -> Handler:
    """LPAD and RPAD: null for an empty pad; characters beyond the basic plane count as two, as in Java."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        value, pad = argument("s", arguments[0], name), argument("s", arguments[2], name)
        length = argument("i", arguments[1], name)
        beyond = f"CHAR_LENGTH(REGEXP_REPLACE(SUBSTRING({value.sql}, 1, {length.sql}), {BEYOND}, ''))"
        sql = f"{name}({value.sql}, {length.wrapped} - {beyond}, {pad.sql})"
        if not pad.constant or (integer(length) or -1) < 0:
            sql = f"CASE WHEN {pad.wrapped} = '' OR {length.wrapped} < 0 THEN NULL ELSE {sql} END"
        return made(sql, STRING, value, length, pad)

    return render


def _replace(arguments: Sequence[Rendered]) -> Rendered:
    """An empty text to look for stands between all characters."""
    value, old, new = (argument("s", item, "REPLACE") for item in arguments)
    plain = f"REPLACE({value.sql}, {old.sql}, {new.sql})"
    between = f"REGEXP_REPLACE({value.sql}, '', {_quoted(new.sql)})"
    if old.constant is not None:
        return made(between if old.constant == "" else plain, STRING, value, old, new)
    return made(f"CASE WHEN {old.wrapped} = '' THEN {between} ELSE {plain} END", STRING, value, old, new)


def _quoted(new: str) -> str:
    """A text that REGEXP_REPLACE puts in as it is: Spark's reads `$1` as a group, and a backslash as an escape."""
    return f"REPLACE(REPLACE({new}, '\\\\', '\\\\\\\\'), '$', '\\\\$')"


def overlay(arguments: Sequence[Rendered]) -> Rendered:
    """OVERLAY(text PLACING new FROM start FOR length): a start beyond the text changes nothing."""
    value, new = argument("s", arguments[0], "OVERLAY"), argument("s", arguments[1], "OVERLAY")
    start = argument("i", arguments[2], "OVERLAY")
    length = argument("i", arguments[3], "OVERLAY") if len(arguments) > 3 else None
    count = length.wrapped if length is not None else f"CHAR_LENGTH({new.sql})"
    text, at, size = value.wrapped, start.wrapped, f"CHAR_LENGTH({value.sql})"
    tail = f"CASE WHEN {count} > 0 AND {at} + {count} <= {size} THEN SUBSTRING({text}, {at} + {count}) ELSE '' END"
    placed = f"CONCAT(SUBSTRING({text}, 1, {at} - 1), {new.sql}, {tail})"
    inside = f"CASE WHEN {at} <= 0 OR {at} > {size} THEN {text} ELSE {placed} END"
    sql = f"CASE WHEN {new.wrapped} IS NOT NULL THEN {inside} END"
    return made(sql, STRING, value, new, start, *([length] if length is not None else []))


def trim(value: Rendered, characters: Rendered | None, position: str) -> Rendered:
    """TRIM(position characters FROM value): any of the characters, at one end or both."""
    value = argument("s", value, "TRIM")
    if characters is None:
        return made(f"TRIM({position} FROM {value.sql})", STRING, value)
    characters = argument("s", characters, "TRIM")
    return made(f"TRIM({position} {characters.sql} FROM {value.sql})", STRING, value, characters)


def _trim(position: str) -> Handler:
    return lambda arguments: trim(arguments[0], arguments[1] if len(arguments) > 1 else None, position)


def _concat(arguments: Sequence[Rendered]) -> Rendered:
    if arguments and all(item.type is not None and item.type.name is TypeName.BYTES for item in arguments):
        return made(f"CONCAT({', '.join(item.sql for item in arguments)})", BYTES, *arguments)
    given = [argument("s", item, "CONCAT") for item in arguments]
    if not given:
        raise FunctionFault("CONCAT takes at least one text")
    return made(f"CONCAT({', '.join(item.sql for item in given)})", STRING, *given)


def _concat_ws(arguments: Sequence[Rendered]) -> Rendered:
    given = [argument("s", item, "CONCAT_WS") for item in arguments]
    if len(given) < 2:
        raise FunctionFault("CONCAT_WS takes a separator and at least one text")
    return made(f"CONCAT_WS({', '.join(item.sql for item in given)})", STRING, *given)


def _elt(arguments: Sequence[Rendered]) -> Rendered:
    if len(arguments) < 2:
        raise FunctionFault("ELT takes a number and at least one text")
    number = argument("i", arguments[0], "ELT")
    given = [argument("s", item, "ELT") for item in arguments[1:]]
    cases = " ".join(f"WHEN {index} THEN {item.sql}" for index, item in enumerate(given, 1))
    return made(f"CASE {number.wrapped} {cases} END", STRING, number, *given, simple=False)


def _split_index(arguments: Sequence[Rendered]) -> Rendered:
    value, index = argument("s", arguments[0], "SPLIT_INDEX"), argument("i", arguments[2], "SPLIT_INDEX")
    separator = arguments[1]
    between = f"CHR({separator.sql})" if separator.root in INTEGERS else argument("s", separator, "SPLIT_INDEX").sql
    if separator.constant == "":
        raise FunctionFault("SPLIT_INDEX takes a separator that is not empty")
    parts = f"SPLIT({value.sql}, CONCAT('\\\\Q', {between}, '\\\\E'))"
    sql = f"CASE WHEN {value.wrapped} <> '' AND {index.wrapped} >= 0 THEN GET({parts}, {index.sql}) END"
    return made(sql, STRING, value, separator, index)


def _split(arguments: Sequence[Rendered]) -> Rendered:
    value, separator = (argument("s", item, "SPLIT") for item in arguments)
    sql = f"SPLIT({value.sql}, CONCAT('\\\\Q', {separator.sql}, '\\\\E'))"
    if separator.constant == "":
        sql = f"CASE WHEN {value.wrapped} = '' THEN ARRAY('') ELSE REGEXP_EXTRACT_ALL({value.sql}, '(?s).', 0) END"
    return made(sql, LogicalType(TypeName.ARRAY, element=STRING), value, separator)


def _str_to_map(arguments: Sequence[Rendered]) -> Rendered:
    """The last value of a key that comes twice counts; a pair without a separator has a null."""
    given = [argument("s", item, "STR_TO_MAP") for item in arguments]
    text = given[0].wrapped
    pairs, inner = (item.sql for item in given[1:]) if len(given) > 1 else ("','", "'='")
    key, value = f"GET(SPLIT(_p, {inner}, 2), 0)", f"GET(SPLIT(_p, {inner}, 2), 1)"
    text = f"REGEXP_REPLACE({text}, CONCAT('(', {pairs}, ')+$'), '')"
    sql = (
        f"CASE WHEN {text} = '' THEN CAST(MAP() AS MAP<STRING, STRING>) ELSE"
        f" AGGREGATE(SPLIT({text}, {pairs}),"
        f" CAST(MAP() AS MAP<STRING, STRING>), (_m, _p) ->"
        f" MAP_CONCAT(MAP_FILTER(_m, (_k, _v) -> _k <> {key}), MAP({key}, {value}))) END"
    )
    return made(sql, LogicalType(TypeName.MAP, key=STRING, element=STRING), *given)


def groups_of(pattern: str) -> int:
    """Return the number of groups of a pattern."""
    plain = re.sub(r"\\Q.*?(\\E|$)|\\.|\[(?:\\.|[^\]\\])*\]", "", pattern, flags=re.DOTALL)
    return len(re.findall(r"\((?!\?)|\(\?<(?![=!])", plain))


def _pattern(value: Rendered, name: str) -> Rendered:
    if value.constant is None:
        raise FunctionFault(f"{name} takes its pattern as a literal: one that a row brings may be no pattern")
    return value


def _extract(name: str, *, group: int, everything: bool) -> Handler:
    def render(arguments: Sequence[Rendered]) -> Rendered:
        value, pattern = argument("s", arguments[0], name), _pattern(argument("s", arguments[1], name), name)
        index = group
        if len(arguments) > 2:
            found = integer(arguments[2])
            if found is None:
                raise FunctionFault(f"{name} takes the number of a group as a literal")
            index = found
        kind = LogicalType(TypeName.ARRAY, element=STRING) if everything else STRING
        if not 0 <= index <= groups_of(pattern.constant or ""):
            return made("CAST(NULL AS ARRAY<STRING>)" if everything else "CAST(NULL AS STRING)", kind, value)
        if everything:
            return made(f"REGEXP_EXTRACT_ALL({value.sql}, {pattern.sql}, {index})", kind, value)
        group_of = f"REGEXP_EXTRACT({value.sql}, {pattern.sql}, {index})"
        known = pattern.constant or ""
        if index > 0 and any(sign in known for sign in "?*|{") and not re.search(r"\(\?[a-zA-Z]*x|\\Q", known):
            # Spark gives '' for a group that took no part, Flink null: a reference back to such a group never matches.
            back = quote_text(f"(?>{known})(?:\\{index})")
            taken = f"REGEXP_INSTR({value.sql}, {back})"
            same = f"{taken} = REGEXP_INSTR({value.sql}, {pattern.sql})"
            group_of = f"CASE WHEN {group_of} <> '' OR {same} THEN {group_of} END"
        return made(f"CASE WHEN REGEXP_LIKE({value.sql}, {pattern.sql}) THEN {group_of} END", kind, value)

    return render


def _regexp(name: str, text: str, kind: LogicalType) -> Handler:
    """A function of a text and a pattern, and a third text if there is one."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("s", arguments[0], name)
        others = [_pattern(argument("s", arguments[1], name), name)]
        others += [argument("s", item, name) for item in arguments[2:]]
        return made(text.format(value.sql, *(item.sql for item in others)), kind, value, *others)

    return render


def _regexp_like(arguments: Sequence[Rendered]) -> Rendered:
    value, pattern = argument("s", arguments[0], "REGEXP"), _pattern(argument("s", arguments[1], "REGEXP"), "REGEXP")
    sql = f"REGEXP_LIKE({value.sql}, {pattern.sql})" if pattern.constant else f"({value.wrapped} IS NULL AND NULL)"
    return made(sql, BOOLEAN, value)


def _from_base64(arguments: Sequence[Rendered]) -> Rendered:
    """Null of a text that is no Base64: Spark passes over strange signs, and raises an error where too few are left."""
    value = argument("s", arguments[0], "FROM_BASE64")
    sql = f"CASE WHEN REGEXP_LIKE({value.sql}, {_BASE64}) THEN DECODE(UNBASE64({value.sql}), 'UTF-8') END"
    return made(sql, STRING, value)


def _parse_url(arguments: Sequence[Rendered]) -> Rendered:
    """The key of a query stands for itself, as in Flink: Spark takes it for a pattern, and fails where it is none."""
    given = [argument("s", item, "PARSE_URL") for item in arguments]
    texts = [item.sql for item in given]
    if len(given) > 2 and not _PLAIN.fullmatch(given[2].constant or "."):
        begin, end, inside = map(quote_text, (r"\Q", r"\E", r"\E\\E\Q"))
        texts[2] = f"CONCAT({begin}, REPLACE({texts[2]}, {end}, {inside}), {end})"
    return made(f"TRY_PARSE_URL({', '.join(texts)})", STRING, *given)


def _hex(arguments: Sequence[Rendered]) -> Rendered:
    value = arguments[0]
    if value.root in INTEGERS:
        return made(f"HEX(CAST({value.sql} AS BIGINT))", STRING, value)
    value = argument("b", value, "HEX")
    return made(f"HEX({value.sql})", STRING, value)


def _printf(arguments: Sequence[Rendered]) -> Rendered:
    raise FunctionFault("PRINTF is not supported: join texts with CONCAT")


_BASE64: Final = quote_text(r"\A(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?\z")
"""What Java's decoder takes, as Flink does: padding may be left out."""
_FIRST_BYTE: Final = "CAST(CONV(HEX(SUBSTRING(CAST({0} AS BINARY), 1, 1)), 16, 10) AS INT)"
_ASCII: Final = f"CASE WHEN {{0}} = '' THEN 0 ELSE ({_FIRST_BYTE} + 128) % 256 - 128 END"
"""The first byte of UTF-8, signed."""
_UNHEX: Final = (
    "CASE WHEN CHAR_LENGTH({0}) % 2 = 1 AND UNHEX(SUBSTRING({0}, 1, 1)) IS NOT NULL"
    " THEN UNHEX(CONCAT('0', SUBSTRING({0}, 2))) ELSE UNHEX({0}) END"
)
"""The first of an odd number of digits counts as 0, as in Flink."""

FUNCTIONS: Final[dict[str, Overloads]] = {
    **overloads(
        {
            **{name: [("s", "CHAR_LENGTH({0})", INT)] for name in ("CHAR_LENGTH", "CHARACTER_LENGTH")},
            "UPPER": [("s", "UPPER({0})", STRING)],
            "LOWER": [("s", "LOWER({0})", STRING)],
            "INITCAP": [("s", INITCAP, STRING)],
            "LEFT": [("si", "LEFT({0}, {1})", STRING)],
            "RIGHT": [("si", "RIGHT({0}, {1})", STRING)],
            "REPEAT": [("si", "REPEAT({0}, {1})", STRING)],
            "REVERSE": [("s", "REVERSE({0})", STRING)],
            "POSITION": [("ss", "LOCATE({0}, {1})", INT)],
            "LOCATE": [
                ("ss", "LOCATE({0}, {1})", INT),
                ("ssi", "CASE WHEN {2} IS NOT NULL THEN LOCATE({0}, {1}, {2}) END", INT),
            ],
            "INSTR": [("ss", "INSTR({0}, {1})", INT)],
            "ASCII": [("s", _ASCII, INT)],
            "CHR": [("i", "CHR({0})", STRING)],
            "TRANSLATE": [("sss", "TRANSLATE({0}, {1}, {2})", STRING)],
            "STARTSWITH": [("ss", "STARTSWITH({0}, {1})", BOOLEAN)],
            "ENDSWITH": [("ss", "ENDSWITH({0}, {1})", BOOLEAN)],
            "MD5": [("b", "MD5({0})", _characters("MD5", 32))],
            "SHA1": [("b", "SHA1({0})", _characters("SHA1", 40))],
            **{f"SHA{bits}": [("b", f"SHA2({{0}}, {bits})", _characters("SHA", bits // 4))]
               for bits in (224, 256, 384, 512)},
            "SHA2": [("bi", "SHA2({0}, {1})", STRING)],
            # Spark breaks lines after 76 characters, Flink does not.
            "TO_BASE64": [("b", "REPLACE(BASE64({0}), '\\r\\n', '')", STRING)],
            "ENCODE": [("ss", "ENCODE({0}, {1})", BYTES)],
            "DECODE": [("bs", "DECODE({0}, {1})", STRING)],
            "UNHEX": [("s", _UNHEX, BYTES)],
            "URL_ENCODE": [("s", "URL_ENCODE({0})", STRING)],
            "URL_DECODE": [("s", "TRY_URL_DECODE({0})", STRING)],
            "IS_ALPHA": [("s", "COALESCE({0} RLIKE '^\\\\p{{L}}+$', FALSE)", BOOLEAN)],
            "IS_DIGIT": [("s", "COALESCE({0} RLIKE '^\\\\p{{Nd}}+$', FALSE)", BOOLEAN)],
            "IS_DECIMAL": [("s", "COALESCE({0} RLIKE " + _NUMBER.replace("{", "{{").replace("}", "}}") + ", FALSE)",
                            BOOLEAN)],
        }
    ),
    "FROM_BASE64": {1: _from_base64},
    "PARSE_URL": {2: _parse_url, 3: _parse_url},
    "SUBSTRING": {2: _substring, 3: _substring},
    "SUBSTR": {2: _substring, 3: _substring},
    "LPAD": {3: _pad("LPAD")},
    "RPAD": {3: _pad("RPAD")},
    "REPLACE": {3: _replace},
    "OVERLAY": {3: overlay, 4: overlay},
    "BTRIM": {1: _trim("BOTH"), 2: _trim("BOTH")},
    "LTRIM": {1: _trim("LEADING"), 2: _trim("LEADING")},
    "RTRIM": {1: _trim("TRAILING"), 2: _trim("TRAILING")},
    "CONCAT": {ANY: _concat},
    "CONCAT_WS": {ANY: _concat_ws},
    "ELT": {ANY: _elt},
    "SPLIT_INDEX": {3: _split_index},
    "SPLIT": {2: _split},
    "STR_TO_MAP": {1: _str_to_map, 3: _str_to_map},
    "REGEXP": {2: _regexp_like},
    "REGEXP_REPLACE": {3: _regexp("REGEXP_REPLACE", f"REGEXP_REPLACE({{0}}, {{1}}, {_quoted('{2}')})", STRING)},
    "REGEXP_COUNT": {2: _regexp("REGEXP_COUNT", "REGEXP_COUNT({0}, {1})", INT)},
    "REGEXP_INSTR": {2: _regexp("REGEXP_INSTR", "REGEXP_INSTR({0}, {1})", INT)},
    "REGEXP_SUBSTR": {2: _regexp("REGEXP_SUBSTR", "REGEXP_SUBSTR({0}, {1})", STRING)},
    "REGEXP_EXTRACT": dict.fromkeys((2, 3), _extract("REGEXP_EXTRACT", group=0, everything=False)),
    "REGEXP_EXTRACT_ALL": dict.fromkeys((2, 3), _extract("REGEXP_EXTRACT_ALL", group=1, everything=True)),
    "HEX": {1: _hex},
    "PRINTF": {ANY: _printf},
}  # fmt: skip
