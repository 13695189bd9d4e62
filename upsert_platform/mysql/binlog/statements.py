"""The meaning of a statement in the log for a reader of rows."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from upsert_platform.mysql.tokens import tokens

_COMMENT: Final = re.compile(r"/\*(?!!|M!).*?\*/|--[ \t][^\n]*(?:\n|$)|#[^\n]*(?:\n|$)", re.DOTALL)
_CONDITIONAL: Final = re.compile(r"/\*M?!\d*")
_WORD: Final = re.compile(r"[A-Za-z_]+")
_CHANGES: Final = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "DO", "SELECT", "TABLE"))
_DDL: Final = frozenset(("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"))
_HARMLESS: Final = frozenset(
    ("GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "SET", "USE", "INSTALL", "UNINSTALL")
)


class Meaning(StrEnum):
    """The effect of a statement on rows."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    ROLLBACK_TO = "rollback to"
    SAVEPOINT = "savepoint"
    DDL = "ddl"
    CHANGE = "change"
    NOTHING = "nothing"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    UNKNOWN = "unknown"


_XA: Final = {
    "START": Meaning.XA_START,
    "END": Meaning.XA_END,
    "COMMIT": Meaning.XA_COMMIT,
    "ROLLBACK": Meaning.XA_ROLLBACK,
}
"""Second words of the statements that servers log of a transaction in two phases; PREPARE is an event."""


def meaning(sql: str) -> Meaning:
    """Judges a statement by its first words, comments left out.

    A change of rows that is logged as text can only be repeated by a server; one that is not known may be such a
    change.
    """
    text = _CONDITIONAL.sub(" ", _COMMENT.sub(" ", sql))
    words = [match.upper() for match in _WORD.findall(text[:200])[:3]]
    first = words[0] if words else ""
    if first in ("BEGIN", "START"):
        return Meaning.BEGIN
    if first == "COMMIT":
        return Meaning.COMMIT
    if first == "ROLLBACK":
        return Meaning.ROLLBACK_TO if "TO" in words else Meaning.ROLLBACK
    if first in ("SAVEPOINT", "RELEASE"):
        return Meaning.SAVEPOINT
    if first == "XA":
        return _XA.get(words[1] if len(words) > 1 else "", Meaning.UNKNOWN)
    if first in _DDL:
        return Meaning.DDL
    if words[:2] == ["SET", "STATEMENT"]:
        # MariaDB's SET STATEMENT ... FOR has any statement behind it.
        inner = tokens(text)
        return meaning(" ".join(inner)) if [word.upper() for word in inner[:2]] != words[:2] else Meaning.UNKNOWN
    if first in _CHANGES:
        return Meaning.CHANGE
    return Meaning.NOTHING if first in _HARMLESS else Meaning.UNKNOWN
