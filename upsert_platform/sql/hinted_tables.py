"""Hints OPTIONS: each table that is read with options of its own becomes a second table LIKE the declared one.

All statements share what is read of a table, so a table with another start, or another group, is another one. Behind
the target of an INSERT the options are those of the target, for which its INSERTs have to agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options, shown_option
from upsert_platform.sql.declarations import Declarations, LikeDeclaration, TableDeclaration
from upsert_platform.sql.hints import changing_options, without_options
from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.reader import Fault

_LONGEST: Final = 64
"""Letters of a name that is made of options; the rest of a longer one becomes a checksum."""
_BEHIND: Final = (
    "AND", "AS", "CROSS", "EXCEPT", "FETCH", "FOR", "FULL", "GROUP", "HAVING", "INNER", "INTERSECT", "JOIN", "LEFT",
    "LIMIT", "MATCH_RECOGNIZE", "MINUS", "NATURAL", "OFFSET", "ON", "ORDER", "RIGHT", "TABLESAMPLE", "UNION", "USING",
    "WHERE", "WINDOW",
)  # fmt: skip
"""Words behind a table that are no alias."""


def with_hinted_tables(found: Declarations) -> list[Problem]:
    """Gives declarations the tables that hints ask for, has queries read these, and returns what is wrong or said."""
    problems: list[Problem] = []
    tables = {table.name: table for table in found.tables}
    made: dict[str, TableDeclaration] = {}
    found.views = [
        replace(view, query=_read(view.query, view.location.file, tables, made, problems)) for view in found.views
    ]
    asked: dict[str, list[dict[str, str]]] = {}
    inserts = []
    for insert in found.inserts:
        own, query = _of_target(insert.query)
        asked.setdefault(insert.target, []).append(own)
        inserts.append(replace(insert, query=_read(query, insert.location.file, tables, made, problems)))
    for insert in inserts:
        wanted = asked.pop(insert.target, [])
        if any(options != wanted[0] for options in wanted):
            message = (
                f"the hints OPTIONS of the INSERTs INTO {insert.target} differ, and a table has its options once: put"
                " them into the WITH clause of the table"
            )
            problems.append(Problem(message, insert.location))
        elif wanted and wanted[0]:
            found.tables = [
                replace(table, options=_over(table.options, wanted[0], insert.location))
                if table.name == insert.target
                else table
                for table in found.tables
            ]
    found.inserts = inserts
    found.tables += made.values()
    found.unread |= {table.like.table for table in made.values() if table.like is not None}
    return problems


def _of_target(query: tuple[Token, ...]) -> tuple[dict[str, str], tuple[Token, ...]]:
    """The options behind the target of an INSERT, and its query without them."""
    if not query or query[0].kind is not TokenKind.HINT:
        return {}, query
    try:
        options = changing_options(query[0])
    except Fault:
        return {}, query  # said where the query is read
    return options, (*without_options(query[0]), *query[1:]) if options else query


def _read(
    query: tuple[Token, ...],
    file: str,
    tables: dict[str, TableDeclaration],
    made: dict[str, TableDeclaration],
    problems: list[Problem],
) -> tuple[Token, ...]:
    """The tokens of a query that reads the tables that its hints ask for, which are added to `made`."""
    given: list[Token] = []
    for at, token in enumerate(query):
        try:
            options = changing_options(token) if token.kind is TokenKind.HINT else {}
        except Fault:
            options = {}  # said where the query is read
        start = _name_before(given)
        name = "".join(item.value for item in given[start:])
        if not options or name not in tables:
            given.append(token)
            continue
        place = SourceLocation(file, token.line)
        table = _hinted(tables[name], options, place)
        taken = tables.get(table.name) or made.get(table.name)
        if taken is not None and (taken.like is None or taken.like.table != name or dict(taken.options) != options):
            message = (
                f"the hint OPTIONS makes a table '{table.name}', and there is another one of that name (at"
                f" {taken.location}): declare one, CREATE TABLE ... WITH (...) LIKE {name}, and name that here"
            )
            problems.append(Problem(message, place))
        elif taken is None:
            shown = ", ".join(f"'{option}'" for option in options)
            message = (
                f"the hint OPTIONS of {shown} makes '{table.name}' of '{name}', a table that is read by itself; CREATE"
                f" TABLE ... WITH (...) LIKE {name} gives it a name of your choice"
            )
            problems.append(Problem(message, place, "warning"))
            made[table.name] = table
        like = given[start]
        inside = start > 0 and given[start - 1].is_word("TABLE")
        own = replace(like, kind=TokenKind.QUOTED, text=f"`{table.name}`", value=table.name)
        last = given[-1]
        del given[start:]
        given.append(own)
        if not inside and not _has_alias(query[at + 1 :]):
            given.append(replace(like, kind=TokenKind.WORD, text="AS", value="AS", spaced=True))
            given.append(replace(last, spaced=True))
        given += without_options(token)
    return tuple(given)


def _name_before(tokens: Sequence[Token]) -> int:
    """The place at which the name at the end of tokens begins: ``a``, or ``a.b``."""
    at = len(tokens) - 1
    while at >= 2 and tokens[at - 1].is_word(".") and tokens[at].kind in (TokenKind.WORD, TokenKind.QUOTED):
        at -= 2
    return max(at, 0)


def _has_alias(rest: Sequence[Token]) -> bool:
    following = next((token for token in rest if token.kind is not TokenKind.HINT), None)
    if following is None:
        return False
    if following.is_word("AS") or following.kind is TokenKind.QUOTED:
        return True
    if following.is_word("FOR"):  # FOR SYSTEM_TIME AS OF time AS alias
        return True
    return following.kind is TokenKind.WORD and following.value.upper() not in _BEHIND


def _hinted(table: TableDeclaration, options: dict[str, str], place: SourceLocation) -> TableDeclaration:
    name = f"{table.name}_{_spelled(options)}"
    like = LikeDeclaration(table.name, place)
    return TableDeclaration(name, place, options=Options(options, dict.fromkeys(options, place)), like=like)


def _spelled(options: dict[str, str]) -> str:
    """Options as a part of a name; of values that are not shown the option alone."""
    parts: Iterable[str] = (
        f"{name}_{value}" if shown_option(name, value) == value else name for name, value in sorted(options.items())
    )
    whole = "_".join(parts)
    plain = re.sub(r"\W+", "_", whole).strip("_").lower()
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[:_LONGEST]}_{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _over(options: Options, other: dict[str, str], place: SourceLocation) -> Options:
    places = {name: at for name in options if (at := options.location(name)) is not None}
    return Options({**options, **other}, {**places, **dict.fromkeys(other, place)})
