"""Words of a statement in the log: names, texts and signs, comments left out."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"/\*(?!!|M!).*?\*/|--[ \t][^\n]*|#[^\n]*|/\*M?!\d*|\*/"
    r"|'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[\w$]+|\S",
    re.DOTALL,
)
_COMMENTS: Final = ("/*", "--", "#", "*/")


def tokens(sql: str) -> list[str]:
    """The words of a statement; of MariaDB's ``SET STATEMENT name = value FOR ...`` those of the one behind it."""
    found = [token for token in _TOKEN.findall(sql) if not token.startswith(_COMMENTS)]
    while [token.upper() for token in found[:2]] == ["SET", "STATEMENT"]:
        behind = _behind_for(found)
        if behind is None:
            break
        found = found[behind:]
    return found


def _behind_for(found: list[str]) -> int | None:
    """Return the index of the statement behind FOR; a FOR in brackets belongs to a value."""
    depth = 0
    for index, token in enumerate(found):
        depth += (token == "(") - (token == ")")
        if token.upper() == "FOR" and not depth:
            return index + 1
    return None


def plain(name: str) -> str:
    """A name without its quotes."""
    if name[:1] in ("`", '"'):
        return name[1:-1].replace(name[0] * 2, name[0])
    return name
