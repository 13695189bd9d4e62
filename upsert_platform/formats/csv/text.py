"""One CSV record to its fields, as Jackson's CSV parser splits it.

Only the first record of a message counts. A quote opens a field at its very beginning; after the closing quote only
blanks may stand before the delimiter. Outside quotes, quotes are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from upsert_platform.formats.options import CsvSettings

_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}


class CsvSyntaxError(ValueError):
    """The message is not a CSV record of the declared columns."""


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """Characters with a meaning; None where there is none."""

    delimiter: str
    quote: str | None
    escape: str | None
    comments: bool

    @staticmethod
    def of(settings: CsvSettings) -> CsvDialect:
        """The dialect of a table's settings."""
        quote = None if settings.disable_quote_character else settings.quote_character or '"'
        return CsvDialect(settings.field_delimiter, quote, settings.escape_character, settings.allow_comments)


def split_record(text: str, dialect: CsvDialect, columns: int) -> list[str]:
    """Fields of the first record: at most as many as columns; one empty field more is passed over.

    Raises:
        CsvSyntaxError: no record, a broken quote or escape, or too many fields.
    """
    at = 0
    if dialect.comments:
        while text[at : at + 1] in ("#", " ", "\r", "\n"):
            at = _line_end(text, at) if text[at] == "#" else at + 1
    if at >= len(text):
        raise CsvSyntaxError("the message is empty" if not text else "the message holds comments only")
    fields: list[str] = []
    while True:
        value, at, last = _field(text, at, dialect)
        fields.append(value)
        if last:
            break
        if len(fields) > columns + 1:
            break
    extra = fields[columns:]
    if len(extra) > 1 or (extra and extra[0].strip("".join(map(chr, range(33))))):
        raise CsvSyntaxError(f"more fields than the {columns} declared")
    return fields[:columns]


def _line_end(text: str, at: int) -> int:
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    if text.startswith("\r\n", at):
        return at + 2
    return at + 1


def _field(text: str, at: int, dialect: CsvDialect) -> tuple[str, int, bool]:
    """A field, where the next one begins, and whether it is the last of the record."""
    if dialect.quote is not None and text.startswith(dialect.quote, at):
        return _quoted(text, at + 1, dialect)
    value: list[str] = []
    while at < len(text):
        character = text[at]
        at += 1
        if character == dialect.delimiter:
            return "".join(value), at, False
        if character in "\r\n":
            return "".join(value), at, True
        if character == dialect.escape:
            character, at = _escaped(text, at)
        value.append(character)
    return "".join(value), at, True


def _quoted(text: str, at: int, dialect: CsvDialect) -> tuple[str, int, bool]:
    value: list[str] = []
    while True:
        if at >= len(text):
            raise CsvSyntaxError("a closing quote is missing")
        character = text[at]
        at += 1
        if character == dialect.quote:
            if not text.startswith(character, at):
                break
            at += 1
        elif character == dialect.escape:
            character, at = _escaped(text, at)
        value.append(character)
    while at < len(text):
        character = text[at]
        at += 1
        if character == dialect.delimiter:
            return "".join(value), at, False
        if character in "\r\n":
            return "".join(value), at, True
        if character > " ":
            raise CsvSyntaxError("text after a closing quote")
    return "".join(value), at, True


def _escaped(text: str, at: int) -> tuple[str, int]:
    if at >= len(text):
        raise CsvSyntaxError("an escape character ends the message")
    return _ESCAPES.get(text[at], text[at]), at + 1
