"""Flink's functions in Spark SQL, where name or meaning differ. A function that is not named here is left to Spark.

Templates: ``{0}``, ``{1}`` are arguments, ``{*}`` all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from upsert_platform.sql.rendered import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    Rendered,
    cast,
    quote_text,
    truncate,
)  # fmt: skip
from upsert_platform.types import LogicalType, TypeName


class FunctionFault(Exception):  # noqa: N818 - the renderer adds the line and makes it a problem
    """A function cannot be translated, with the reason."""


def _words(text: str) -> list[str]:
    return text.split()


AGGREGATES: Final = frozenset(
    _words(
        "APPROX_COUNT_DISTINCT ARRAY_AGG AVG COLLECT COUNT CUME_DIST DENSE_RANK FIRST_VALUE GROUPING GROUPING_ID"
        " GROUP_ID JSON_ARRAYAGG JSON_OBJECTAGG LAG LAST_VALUE LEAD LISTAGG MAX MIN NTILE PERCENT_RANK RANK ROW_NUMBER"
        " STDDEV STDDEV_POP STDDEV_SAMP SUM VARIANCE VAR_POP VAR_SAMP"
    )
)
WINDOWS: Final = frozenset(
    _words(
        "CUMULATE HOP HOP_END HOP_PROCTIME HOP_ROWTIME HOP_START SESSION SESSION_END SESSION_PROCTIME SESSION_ROWTIME"
        " SESSION_START TUMBLE TUMBLE_END TUMBLE_PROCTIME TUMBLE_ROWTIME TUMBLE_START"
    )
)
_NOT_THERE: Final = {
    "JSON_QUERY": "JSON_VALUE takes a value out of JSON",
    "JSON_EXISTS": "compare JSON_VALUE(...) with NULL",
    "JSON_OBJECT": "Spark's to_json(named_struct('key', value)) writes JSON",
    "JSON_ARRAY": "Spark's to_json(array(...)) writes JSON",
    "CURRENT_WATERMARK": "micro-batches have no watermarks",
    "HASH_CODE": "use MD5 or SHA256",
}
VARYING: Final = frozenset(
    _words(
        "CURRENT_DATE CURRENT_ROW_TIMESTAMP CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP NOW PROCTIME RAND"
        " RAND_INTEGER UUID"
    )
)
"""Functions that give another value when a batch is written again."""

_TIMESTAMP3: Final = LogicalType(TypeName.TIMESTAMP, precision=3)
_LTZ3: Final = LogicalType(TypeName.TIMESTAMP_LTZ, precision=3)
_TIME0: Final = LogicalType(TypeName.TIME, precision=0)
_NOW: Final = truncate("CURRENT_TIMESTAMP()", _LTZ3)
_TIME_OF_DAY: Final = "UNIX_MICROS(CURRENT_TIMESTAMP()) DIV 1000000 * 1000000 % 86400000000"

_TEMPLATES: Final[dict[tuple[str, int], tuple[str, LogicalType | None]]] = {
    ("CHAR_LENGTH", 1): ("CHAR_LENGTH({0})", INT),
    ("CHARACTER_LENGTH", 1): ("CHAR_LENGTH({0})", INT),
    ("UPPER", 1): ("UPPER({0})", STRING),
    ("LOWER", 1): ("LOWER({0})", STRING),
    ("SUBSTR", 2): ("SUBSTRING({0}, {1})", STRING),
    ("SUBSTR", 3): ("SUBSTRING({0}, {1}, {2})", STRING),
    ("MD5", 1): ("MD5(CAST({0} AS BINARY))", STRING),
    ("SHA1", 1): ("SHA1(CAST({0} AS BINARY))", STRING),
    ("SHA224", 1): ("SHA2(CAST({0} AS BINARY), 224)", STRING),
    ("SHA256", 1): ("SHA2(CAST({0} AS BINARY), 256)", STRING),
    ("SHA384", 1): ("SHA2(CAST({0} AS BINARY), 384)", STRING),
    ("SHA512", 1): ("SHA2(CAST({0} AS BINARY), 512)", STRING),
    # Spark breaks lines after 76 characters, Flink does not.
    ("TO_BASE64", 1): ("REPLACE(BASE64(CAST({0} AS BINARY)), '\\r\\n', '')", STRING),
    ("FROM_BASE64", 1): ("DECODE(UNBASE64({0}), 'UTF-8')", STRING),
    ("INSTR", 2): ("INSTR({0}, {1})", INT),
    ("REGEXP", 2): ("REGEXP_LIKE({0}, {1})", BOOLEAN),
    ("REGEXP_EXTRACT", 2): ("CASE WHEN REGEXP_LIKE({0}, {1}) THEN REGEXP_EXTRACT({0}, {1}, 0) END", STRING),
    ("REGEXP_EXTRACT", 3): ("CASE WHEN REGEXP_LIKE({0}, {1}) THEN REGEXP_EXTRACT({0}, {1}, {2}) END", STRING),
    ("SPLIT_INDEX", 3): (
        "CASE WHEN {2} >= 0 THEN TRY_ELEMENT_AT(SPLIT({0}, CONCAT('\\\\Q', {1}, '\\\\E')), {2} + 1) END", STRING,
    ),
    ("STR_TO_MAP", 1): ("STR_TO_MAP({0}, ',', '=')", None),
    ("URL_DECODE", 1): ("TRY_URL_DECODE({0})", STRING),
    ("PARSE_URL", 2): ("TRY_PARSE_URL({0}, {1})", STRING),
    ("PARSE_URL", 3): ("TRY_PARSE_URL({0}, {1}, {2})", STRING),
    ("IS_ALPHA", 1): ("COALESCE({0} RLIKE '^\\\\p{{L}}+$', FALSE)", BOOLEAN),
    ("IS_DIGIT", 1): ("COALESCE({0} RLIKE '^\\\\p{{Nd}}+$', FALSE)", BOOLEAN),
    ("IS_DECIMAL", 1): ("COALESCE({0} RLIKE '^[+-]?[0-9]+(\\\\.[0-9]*)?$', FALSE)", BOOLEAN),
    ("JSON_STRING", 1): ("TO_JSON({0})", STRING),
    ("LOG10", 1): ("LOG10({0})", DOUBLE),
    ("TRUNCATE", 1): ("CASE WHEN {0} < 0 THEN -FLOOR(-{0}) ELSE FLOOR({0}) END", None),
    ("TRUNCATE", 2): ("CASE WHEN {0} < 0 THEN -FLOOR(-{0}, {1}) ELSE FLOOR({0}, {1}) END", None),
    ("RAND_INTEGER", 1): ("CAST(FLOOR(RAND() * {0}) AS INT)", INT),
    ("IFNULL", 2): ("COALESCE({0}, {1})", None),
    ("CARDINALITY", 1): ("CARDINALITY({0})", INT),
    ("ELEMENT", 1): ("TRY_ELEMENT_AT({0}, 1)", None),
    ("ROW", -1): ("STRUCT({*})", None),
    ("NOW", 0): (_NOW, _LTZ3),
    ("CURRENT_TIMESTAMP", 0): (_NOW, _LTZ3),
    ("CURRENT_ROW_TIMESTAMP", 0): (_NOW, _LTZ3),
    ("PROCTIME", 0): (_NOW, _LTZ3),
    ("LOCALTIMESTAMP", 0): (truncate("LOCALTIMESTAMP()", _TIMESTAMP3), _TIMESTAMP3),
    ("CURRENT_DATE", 0): ("CURRENT_DATE()", DATE),
    ("CURRENT_TIME", 0): (_TIME_OF_DAY, _TIME0),
    ("LOCALTIME", 0): (_TIME_OF_DAY, _TIME0),
    ("UNIX_TIMESTAMP", 0): ("UNIX_TIMESTAMP()", BIGINT),
    ("UNIX_TIMESTAMP", 1): ("UNIX_TIMESTAMP({0}, 'yyyy-MM-dd HH:mm:ss')", BIGINT),
    ("TO_TIMESTAMP", 1): ("TRY_CAST({0} AS TIMESTAMP_NTZ)", _TIMESTAMP3),
    ("TO_DATE", 1): ("TRY_CAST({0} AS DATE)", DATE),
    ("CONVERT_TZ", 3): (
        "DATE_FORMAT(CONVERT_TIMEZONE({1}, {2}, TRY_CAST({0} AS TIMESTAMP_NTZ)), 'yyyy-MM-dd HH:mm:ss')", STRING,
    ),
    **{(name, 1): (f"{name}({{0}})", BIGINT) for name in
       ("YEAR", "QUARTER", "MONTH", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND")},
    ("WEEK", 1): ("WEEKOFYEAR({0})", BIGINT),
}  # fmt: skip
_PATTERNS: Final = {("UNIX_TIMESTAMP", 2): 1, ("FROM_UNIXTIME", 2): 1, ("DATE_FORMAT", 2): 1, ("TO_TIMESTAMP", 2): 1,
                    ("TO_DATE", 2): 1}  # fmt: skip
# Letters of java.time patterns that Spark refuses.
_LETTERS_NOT_IN_SPARK: Final = set("YWwuecAnNBpgI")


def call(name: str, arguments: Sequence[Rendered]) -> Rendered:
    """Spark SQL of a function call.

    Raises:
        FunctionFault: it cannot be translated.
    """
    upper, count = name.upper(), len(arguments)
    if upper in _NOT_THERE:
        raise FunctionFault(f"{upper} is not supported: {_NOT_THERE[upper]}")
    position = _PATTERNS.get((upper, count))
    if position is not None:
        _check_pattern(upper, arguments[position])
    varies = next((item.varies for item in arguments if item.varies), upper if upper in VARYING else None)
    if upper == "UNIX_TIMESTAMP" and count == 0:
        varies = upper
    special = _SPECIAL.get(upper)
    found = special(arguments) if special is not None else _from_template(upper, count, arguments)
    if found is None:
        found = Rendered(f"{name}({', '.join(item.sql for item in arguments)})", simple=True)
    return Rendered(found.sql, found.type, simple=found.simple, varies=varies)


def _from_template(upper: str, count: int, arguments: Sequence[Rendered]) -> Rendered | None:
    template = _TEMPLATES.get((upper, count)) or _TEMPLATES.get((upper, -1))
    if template is None:
        if any(known == upper for known, _ in _TEMPLATES):
            raise FunctionFault(f"{upper} does not take {count} arguments")
        return None
    text, kind = template
    everything = ", ".join(item.sql for item in arguments)
    sql = text.replace("{*}", everything) if "{*}" in text else text.format(*(item.wrapped for item in arguments))
    return Rendered(sql, kind)


def _check_pattern(name: str, pattern: Rendered) -> None:
    if pattern.constant is None:
        return
    quoted = False
    for letter in pattern.constant:
        if letter == "'":
            quoted = not quoted
        elif not quoted and letter in _LETTERS_NOT_IN_SPARK:
            hint = "; 'yyyy' is the year" if letter == "Y" else ""
            raise FunctionFault(f"{name}: Spark has no pattern letter '{letter}'{hint}")


def _extreme(word: str) -> Callable[[Sequence[Rendered]], Rendered]:
    """GREATEST and LEAST: null as soon as one argument is, unlike in Spark."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        nulls = " OR ".join(f"{item.wrapped} IS NULL" for item in arguments)
        values = ", ".join(item.sql for item in arguments)
        return Rendered(f"CASE WHEN {nulls} THEN NULL ELSE {word}({values}) END", arguments[0].type)

    return render


def _date_format(arguments: Sequence[Rendered]) -> Rendered:
    if len(arguments) != 2:
        raise FunctionFault(f"DATE_FORMAT takes 2 arguments, not {len(arguments)}")
    value, pattern = arguments
    if value.root is TypeName.TIME:
        raise FunctionFault("DATE_FORMAT of a TIME is not supported: CAST it AS STRING")
    return Rendered(f"DATE_FORMAT({value.sql}, {pattern.sql})", STRING, simple=True)


def _to_timestamp(arguments: Sequence[Rendered]) -> Rendered | None:
    if len(arguments) != 2:
        return _from_template("TO_TIMESTAMP", len(arguments), arguments)
    parsed = f"CAST(TRY_TO_TIMESTAMP({arguments[0].sql}, {arguments[1].sql}) AS TIMESTAMP_NTZ)"
    return Rendered(truncate(parsed, _TIMESTAMP3), _TIMESTAMP3, simple=True)


def _to_timestamp_ltz(arguments: Sequence[Rendered]) -> Rendered:
    if len(arguments) != 2 or arguments[1].constant not in ("0", "3"):
        raise FunctionFault("TO_TIMESTAMP_LTZ takes a number and its precision, 0 (seconds) or 3 (milliseconds)")
    name = "TIMESTAMP_MILLIS" if arguments[1].constant == "3" else "TIMESTAMP_SECONDS"
    return Rendered(f"{name}({arguments[0].sql})", _LTZ3, simple=True)


def _json_value(arguments: Sequence[Rendered]) -> Rendered:
    if len(arguments) != 2 or arguments[1].constant is None:
        raise FunctionFault("JSON_VALUE takes JSON and a path in quotes, such as '$.name'")
    path = arguments[1].constant.strip()
    for mode in ("lax ", "strict "):
        path = path.removeprefix(mode)
    if not path.startswith("$"):
        raise FunctionFault("JSON_VALUE: a path begins with '$'")
    return Rendered(f"GET_JSON_OBJECT({arguments[0].sql}, {quote_text(path)})", STRING, simple=True)


def _coalesce(arguments: Sequence[Rendered]) -> Rendered:
    kinds = {item.type for item in arguments}
    return Rendered(
        f"COALESCE({', '.join(item.sql for item in arguments)})", kinds.pop() if len(kinds) == 1 else None, simple=True
    )


def _timestamp_arithmetic(name: str) -> Callable[[Sequence[Rendered]], Rendered]:
    units = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")

    def render(arguments: Sequence[Rendered]) -> Rendered:
        if len(arguments) != 3 or (arguments[0].constant or "").upper() not in units:
            raise FunctionFault(f"{name} takes a unit ({', '.join(units)}) and two values")
        unit = (arguments[0].constant or "").upper()
        kind = INT if name == "TIMESTAMPDIFF" else arguments[2].type
        if name == "TIMESTAMPADD" and kind == DATE:
            kind = None
        return Rendered(f"{name}({unit}, {arguments[1].sql}, {arguments[2].sql})", kind, simple=True)

    return render


def _time_part(name: str) -> Callable[[Sequence[Rendered]], Rendered | None]:
    """HOUR, MINUTE and SECOND of a TIME, which is carried as microseconds of the day."""

    def render(arguments: Sequence[Rendered]) -> Rendered | None:
        if len(arguments) == 1 and arguments[0].root is TypeName.TIME:
            return Rendered(f"{name}(TIMESTAMP_MICROS({arguments[0].sql}))", BIGINT, simple=True)
        return _from_template(name, len(arguments), arguments)

    return render


def json_value_as(value: Rendered, to: LogicalType) -> Rendered:
    """JSON_VALUE ... RETURNING: null where the text is no such value."""
    return cast(value, to, safe=True)


_SPECIAL: Final[dict[str, Callable[[Sequence[Rendered]], Rendered | None]]] = {
    "GREATEST": _extreme("GREATEST"),
    "LEAST": _extreme("LEAST"),
    "DATE_FORMAT": _date_format,
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "TO_DATE": lambda arguments: (
        Rendered(f"CAST(TRY_TO_DATE({arguments[0].sql}, {arguments[1].sql}) AS DATE)", DATE, simple=True)
        if len(arguments) == 2
        else _from_template("TO_DATE", len(arguments), arguments)
    ),
    "JSON_VALUE": _json_value,
    "COALESCE": _coalesce,
    "TIMESTAMPADD": _timestamp_arithmetic("TIMESTAMPADD"),
    "TIMESTAMPDIFF": _timestamp_arithmetic("TIMESTAMPDIFF"),
    "HOUR": _time_part("HOUR"),
    "MINUTE": _time_part("MINUTE"),
    "SECOND": _time_part("SECOND"),
}
