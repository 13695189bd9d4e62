"""CSV messages: one line of fields in the order of the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from upsert_platform.referee import clocks, numbers
from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import BINARIES, INTEGERS, TEXTS, Kind
from upsert_platform.referee.raw_values import from_base64

_KNOWN = {
    "csv.field-delimiter", "csv.disable-quote-character", "csv.quote-character", "csv.null-literal",
    "csv.ignore-parse-errors", "csv.write-bigdecimal-in-scientific-notation",
}  # fmt: skip
_DELIMITERS = {"\\t": "\t", "\\u0001": "\x01"}


_BLANKS: Final = "".join(map(chr, range(33)))


def csv_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a message to the values of the columns.

    Raises:
        RefereeError: an option is set, or a column is nested, which the referee does not follow.
    """
    for name in options:
        if name not in _KNOWN:
            raise RefereeError(f"option '{name}' is beyond the referee")
    for name, kind in columns.items():
        if kind.parts:
            raise RefereeError(f"column '{name}': a {kind.root} in CSV is beyond the referee")
    given = options.get("csv.field-delimiter", ",")
    delimiter = _DELIMITERS.get(given, given)
    if len(delimiter) != 1 or delimiter == "\\":
        raise RefereeError(f"'csv.field-delimiter' = '{given}' is beyond the referee")
    quoted = options.get("csv.disable-quote-character", "").strip().lower() != "true"
    quote = options.get("csv.quote-character", '"') if quoted else ""
    null = options.get("csv.null-literal")
    lenient = options.get("csv.ignore-parse-errors", "").strip().lower() == "true"

    def decode(message: bytes) -> list[Any]:
        try:
            return _row(_fields(_record(_text(message), quote), delimiter, quote), columns, null)
        except UndecodableError as error:
            if lenient:
                raise UnjudgedError(str(error)) from None
            raise

    return decode


def _text(message: bytes) -> str:
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise UnjudgedError("not UTF-8 for every reader") from None
    if "\0" in text or "\ufeff" in text:
        raise UnjudgedError("a message with zero bytes or a byte order mark")
    if not text.strip() and not any(end in text for end in "\r\n"):
        raise UnjudgedError("a message that is blank")
    return text


def _record(text: str, quote: str) -> str:
    """The first line of a message: whatever follows it is not read."""
    if "\r" not in text and "\n" not in text:
        return text
    if quote and quote in text:
        raise UnjudgedError("line ends beside quotes")
    return text.replace("\r", "\n").split("\n", 1)[0]


def _fields(line: str, delimiter: str, quote: str) -> list[str]:
    fields: list[str] = []
    at = 0
    while True:
        if quote and line[at : at + 1] == quote:
            field, at = _quoted(line, at + 1, quote)
            if at < len(line) and line[at] != delimiter:
                raise UnjudgedError("text behind a closing quote")
        else:
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            field, at = line[at:end], end
            if quote and field.lstrip()[:1] == quote:
                raise UnjudgedError("blanks before a quote")
        fields.append(field)
        if at >= len(line):
            return fields
        at += 1
        if at == len(line):
            return [*fields, ""]


def _quoted(line: str, at: int, quote: str) -> tuple[str, int]:
    """A field behind its opening quote, and where it ends."""
    parts: list[str] = []
    while True:
        end = line.find(quote, at)
        if end < 0:
            raise UnjudgedError("a quote that does not end")
        parts.append(line[at:end])
        if line[end + 1 : end + 2] != quote:
            return "".join(parts), end + 1
        parts.append(quote)
        at = end + 2


def _row(fields: list[str], columns: Mapping[str, Kind], null: str | None) -> list[Any]:
    if len(fields) == len(columns) + 1 and not fields[-1].strip(_BLANKS):
        fields = fields[:-1]  # one delimiter at the end of a line closes it
    if len(fields) != len(columns):
        raise UndecodableError(f"{len(fields)} fields for {len(columns)} columns")
    return [
        None if null is not None and field == null else _value(field, kind)
        for field, kind in zip(fields, columns.values(), strict=True)
    ]


def _value(text: str, kind: Kind) -> Any:
    if kind.root in TEXTS:
        return text
    if kind.root == "BOOLEAN":
        return numbers.trimmed(text).lower() == "true"
    if kind.root in INTEGERS:
        return numbers.read_integer(text, kind)
    if kind.root in ("FLOAT", "DOUBLE"):
        return numbers.read_float(text, kind)
    if kind.root == "DECIMAL":
        return numbers.read_decimal(text, kind)
    if kind.root in BINARIES:
        return from_base64(text)
    if kind.root == "DATE":
        days = clocks.read_date(text)
        if -141_438 < days < -141_427:
            raise UnjudgedError("a day that the old calendar left out")
        return days
    if kind.root == "TIME":
        unit = 10 ** (9 - kind.digits)
        return clocks.read_clock(text) // unit * unit
    zone = "Z" if kind.root == "TIMESTAMP_LTZ" else ""
    return clocks.read_stamp(text, blank=" ", zone=zone)
