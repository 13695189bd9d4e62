"""The records of a text file: the messages that a format's decoder takes, each with the line at which it begins.

As Flink's filesystem connector divides files: JSON by line ends, CSV as Jackson's parser finds the end of a record, so
a quoted field may hold line ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from upsert_platform.core.options import Settings
from upsert_platform.formats.csv.text import CsvDialect
from upsert_platform.formats.options import CsvSettings

_MARK = b"\xef\xbb\xbf"
_END = re.compile(rb"\r\n|\r|\n")


def split_file(content: bytes, settings: Settings) -> Mapping[int, bytes]:
    """Return the records of a file by the number of their first line, from 1.

    Args:
        settings: of format ``csv`` or ``json``.

    Empty lines of JSON are no records, nor are comments of CSV where they are allowed. A CSV field whose closing quote
    is missing takes the rest of the file; the decoder says so.
    """
    content = content.removeprefix(_MARK)
    if not isinstance(settings, CsvSettings):
        lines = enumerate(content.split(b"\n"), 1)
        return {number: line for number, line in lines if line.rstrip(b"\r")}
    dialect = CsvDialect.of(settings)
    if dialect.quote is None or dialect.quote.encode() not in content:
        found = dict(enumerate(content.splitlines(), 1))
    else:
        found = _csv_records(content, dialect)
    if dialect.comments:
        return {number: record for number, record in found.items() if not _is_passed_over(record)}
    return found


def _is_passed_over(record: bytes) -> bool:
    """Return whether a record is a comment, or blank: where comments are allowed, blank lines are passed over too."""
    text = record.lstrip(b" ")
    return not text or text.startswith(b"#")


def _csv_records(content: bytes, dialect: CsvDialect) -> dict[int, bytes]:
    record = _record(dialect)
    found: dict[int, bytes] = {}
    at, line = 0, 1
    while at < len(content):
        match = record.match(content, at)
        end = match.end() if match is not None else len(content)
        if match is None and content[at : at + 1] == b"#" and dialect.comments:
            end = _line_end(content, at)
        value = content[at:end]
        found[line] = value
        closing = _END.match(content, end)
        line += len(_END.findall(value)) + 1
        at = closing.end() if closing is not None else end
    return found


def _line_end(content: bytes, at: int) -> int:
    found = _END.search(content, at)
    return found.start() if found is not None else len(content)


@lru_cache(maxsize=8)
def _record(dialect: CsvDialect) -> re.Pattern[bytes]:
    """One record up to its line end: fields, each a quoted one with what stands behind it, or one without quotes.

    A quote opens a field at its very beginning alone. Characters are those of UTF-8, of several bytes perhaps.
    """
    assert dialect.quote is not None
    quote, delimiter = (re.escape(item.encode()) for item in (dialect.quote, dialect.delimiter))
    escaped = re.escape(dialect.escape.encode()) if dialect.escape else None
    pair = b"%b(?s:.)|" % escaped if escaped else b""
    behind = b"(?:(?!%b)[^\r\n])*+" % delimiter
    quoted = b"%b(?:%b%b%b|(?!%b)(?s:.))*+%b%b" % (quote, pair, quote, quote, quote, quote, behind)
    plain = b"(?!%b)(?:%b(?!%b)[^\r\n])*+" % (quote, pair, delimiter)
    field = b"(?:%b|%b)" % (quoted, plain)
    comment = b" *+#[^\r\n]*+|" if dialect.comments else b""
    return re.compile(b"(?:%b%b(?:%b%b)*+(?=[\r\n]|\\Z))" % (comment, field, delimiter, field))
