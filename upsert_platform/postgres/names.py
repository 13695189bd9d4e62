"""Names in PostgreSQL: schema and table, quoted."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST_BYTES: Final = 63
"""Bytes of a name; the server cuts longer ones off, which would make two names one."""
_PART: Final = r'("(?:[^"]|"")+"|[^".]+)'
_NAME: Final = re.compile(rf"(?:{_PART}\.)?{_PART}")


class Name(NamedTuple):
    """A table: schema (empty where none is given) and name."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The name as SQL has it."""
        return f"{quote(self.schema)}.{quote(self.table)}"

    def beside(self, table: str) -> Name:
        """Another table of the same schema."""
        return Name(self.schema, table)


def quote(name: str) -> str:
    """A name as SQL has it, with its case."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it, whatever the server takes a backslash for."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def parse_name(text: str) -> Name:
    """Reads ``table``, ``schema.table`` or ``"a.b"."c"``; raises ValueError where the text is not a name."""
    match = _NAME.fullmatch(text.strip())
    if match is None:
        raise ValueError('takes table, schema.table, or parts in double quotes: "a.b"."c"')
    parts = [part.strip() for part in (match[1] or "", match[2])]
    parts = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
    if too_long := [part for part in parts if len(part.encode()) > MOST_BYTES]:
        raise ValueError(f"has the name '{too_long[0]}'; PostgreSQL takes {MOST_BYTES} bytes at most")
    return Name(*parts)
