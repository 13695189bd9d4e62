"""JSON messages: objects of columns, read by the standard library's parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from upsert_platform.referee import clocks, numbers
from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import BINARIES, INTEGERS, TEXTS, Kind
from upsert_platform.referee.raw_values import from_base64
from upsert_platform.referee.registries import number_of, registry

_KNOWN = {"json.ignore-parse-errors", "json.fail-on-missing-field", "json.timestamp-format.standard"}
_ENCODING_ONLY = ("json.encode.", "json.map-null-key.")
_BLANKS = " \t\r\n"
_BYTES_BEYOND = re.compile("[\udc80-\udcff]")
_LONE = re.compile("[\ud800-\udfff]")
_DEEPEST = 200
_EXACT = 1 << 53


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object, with the names that it has more than once."""

    __slots__ = ("twice",)
    twice: set[str]


def _refuse_constant(text: str) -> Any:
    raise UndecodableError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    names = [name for name, _ in pairs]
    made.twice = {name for name in names if names.count(name) > 1} if len(made) < len(pairs) else set()
    return made


_PARSER = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant, object_pairs_hook=_object, strict=False
)


def json_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a message to the values of the columns.

    Raises:
        RefereeError: an option is set that the referee does not follow.
    """
    unknown = [name for name in options if name not in _KNOWN and not name.startswith(_ENCODING_ONLY)]
    if unknown:
        raise RefereeError(f"option '{unknown[0]}' is beyond the referee")
    reader = _Reader(
        blank="T" if options.get("json.timestamp-format.standard", "SQL").strip().upper() == "ISO-8601" else " ",
        demands_all=options.get("json.fail-on-missing-field", "").strip().lower() == "true",
    )
    lenient = options.get("json.ignore-parse-errors", "").strip().lower() == "true"

    def decode(message: bytes) -> list[Any]:
        try:
            return reader.row(_parsed(message), columns)
        except UndecodableError as error:
            if lenient:  # a field that cannot be read is null for some readers
                raise UnjudgedError(str(error)) from None
            raise

    return decode


def json_registry_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from an object behind the number of a JSON Schema, to the values of the columns.

    Raises:
        RefereeError: an option is set that the referee does not follow.
    """
    own = {name: "json" + name.removeprefix("json-registry") for name in options}
    of_data = {name: text for name, text in own.items() if text in _KNOWN or text.startswith(_ENCODING_ONLY)}
    read = json_decoder(columns, {text: options[name] for name, text in of_data.items()})
    schema_of = registry(options, "json-registry", own=[name.removeprefix("json-registry.") for name in of_data])

    def decode(message: bytes) -> list[Any]:
        number = number_of(message)
        if schema_of(number).kind != "JSON":
            raise UndecodableError(f"schema {number} is not a JSON Schema")
        return read(message[5:])

    return decode


def nested_value(text: str, kind: Kind) -> Any:
    """A value of a nested type from JSON text in which dates and times are ISO-8601, as tables without such types
    keep it.

    Raises:
        UndecodableError: it is not JSON.
        UnjudgedError: it has another form.
    """
    return _Reader(blank="T", demands_all=False).value(_parsed(text.encode("utf-8", "surrogatepass")), kind)


def _parsed(message: bytes) -> Any:
    if message[:3] == b"\xef\xbb\xbf" or b"\0" in message[:4]:
        raise UnjudgedError("a message in another encoding than UTF-8, or with a mark of it")
    text = message.decode("utf-8", "surrogateescape").lstrip(_BLANKS)
    try:
        value, end = _PARSER.raw_decode(text)
    except RecursionError:
        raise UnjudgedError("nested too deeply for the referee") from None
    except ValueError as error:
        if text[:1] == "{" and _BYTES_BEYOND.search(text) is None and text.count("{") + text.count("[") > _DEEPEST:
            raise UnjudgedError("nested too deeply for the referee") from None
        raise UndecodableError(f"not JSON: {error}") from None
    if _BYTES_BEYOND.search(text, 0, end):
        if re.search(rb"[\xc0\xc1\xed\xf4-\xff]", message):
            raise UnjudgedError("bytes that are not UTF-8 for every reader")
        raise UndecodableError("not UTF-8")
    return value


class _Reader:
    def __init__(self, *, blank: str, demands_all: bool) -> None:
        self._blank = blank
        self._demands_all = demands_all

    def row(self, value: Any, columns: Mapping[str, Kind]) -> list[Any]:
        if isinstance(value, list):
            raise UnjudgedError("an array of rows")
        if not isinstance(value, _Object):
            raise UndecodableError("not an object")
        if not value.twice.isdisjoint(columns):
            raise UnjudgedError("a name that stands twice")
        if self._demands_all:
            for name in columns:
                if name not in value:
                    raise UndecodableError(f"field '{name}' is missing")
        return [self.value(value.get(name), kind) for name, kind in columns.items()]

    def value(self, value: Any, kind: Kind) -> Any:
        if value is None:
            return None
        if kind.root in ("ARRAY", "MAP", "ROW"):
            return self._nested(value, kind)
        if isinstance(value, (dict, list)):
            raise UnjudgedError(f"an object or array for a {kind.root}")
        if isinstance(value, bool):
            return self._scalar("true" if value else "false", kind, bare=True)
        return self._scalar(str(value), kind, bare=isinstance(value, _Number))

    def _nested(self, value: Any, kind: Kind) -> Any:
        if kind.root == "ARRAY" and isinstance(value, list):
            return [self.value(item, kind.parts[0][1]) for item in value]
        if kind.root == "ROW" and isinstance(value, _Object):
            return self.row(value, dict(kind.parts))
        if kind.root == "MAP" and isinstance(value, _Object) and kind.parts[0][1].root in TEXTS and not value.twice:
            return [(_repaired(name), self.value(item, kind.parts[1][1])) for name, item in value.items()]
        raise UnjudgedError(f"this form of a {kind.root}")

    def _scalar(self, text: str, kind: Kind, *, bare: bool) -> Any:
        """A value from its text; `bare` where it was no string."""
        if kind.root in TEXTS:
            return _repaired(text)
        if kind.root == "BOOLEAN":
            return numbers.trimmed(text).lower() == "true"
        if kind.root in INTEGERS:
            if bare and kind.root in ("INT", "BIGINT") and text not in ("true", "false"):
                return numbers.in_range(_whole(text), kind)
            return numbers.read_integer(text, kind)
        if kind.root in ("FLOAT", "DOUBLE"):
            return numbers.read_float(text, kind)
        if kind.root == "DECIMAL":
            return numbers.read_decimal(numbers.trimmed(text), kind)
        if bare:
            raise UnjudgedError(f"{text[:40]} for a {kind.root}")
        if kind.root in BINARIES:
            return from_base64(text)
        if kind.root == "DATE":
            return clocks.read_date(text)
        if kind.root == "TIME":
            return clocks.read_clock(text) // 1_000_000_000 * 1_000_000_000
        zone = "Z" if kind.root == "TIMESTAMP_LTZ" else ""
        return clocks.read_stamp(text, blank=self._blank, zone=zone)


def _whole(text: str) -> int:
    """A number of the message without its fraction, which readers take off a double."""
    if text.lstrip("-").isdigit():
        if len(text) > 300:
            raise UnjudgedError("a number too long for the referee")
        return int(text)
    value = float(text)
    if abs(value) >= _EXACT:
        raise UnjudgedError("a number with a fraction or exponent that a double does not hold")
    return int(value)


def _repaired(text: str) -> str:
    """A half of a surrogate pair that stands alone becomes a question mark, as in Java."""
    return _LONE.sub("?", text)
