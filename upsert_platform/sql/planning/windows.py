"""Window table functions: ``FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES))``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.plan import Window
from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.planning.scope import Columns, Names, Relation, length_of
from upsert_platform.sql.reader import Fault
from upsert_platform.types import TypeName

FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE")
_ARGUMENTS: Final = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE")}


def unwrap_tables(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """``TABLE(f(DATA => TABLE t, TIMECOL => DESCRIPTOR(x), ...))`` as ``f(t, DESCRIPTOR(`x`), ...)``, which is parsed.

    Raises:
        Fault: arguments are named in another order than that of the function.
    """
    found: list[Token] = []
    wrappers: list[int] = []
    functions: list[tuple[str, int, int]] = []
    depth = at = kept = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1] if at else None
        # What stood between this token and the last one that was kept may have been left out.
        token, kept = (replace(token, spaced=True) if kept < at else token), at
        word = token.value.upper()
        if token.is_word("TABLE") and before is not None:
            if at + 1 < len(tokens) and tokens[at + 1].is_word("(") and before.value.upper() in ("FROM", "JOIN", ","):
                wrappers.append(depth)
                depth += 1
                at += 2
                continue
            if before.is_word("(") or before.is_word(">"):
                at += 1
                continue
        if functions and tokens[at + 1 : at + 3] and [item.value for item in tokens[at + 1 : at + 3]] == ["=", ">"]:
            functions[-1] = _named(functions[-1], word, token)
            at += 3
            continue
        if token.is_word("("):
            depth += 1
            if before is not None and before.value.upper() in FUNCTIONS:
                functions.append((before.value.upper(), depth, 0))
        elif token.is_word(")"):
            depth -= 1
            if functions and functions[-1][1] == depth + 1:
                functions.pop()
            if wrappers and wrappers[-1] == depth:
                wrappers.pop()
                at += 1
                continue
        elif functions and before is not None and before.is_word("(") and tokens[at - 2].is_word("DESCRIPTOR"):
            token = replace(token, kind=TokenKind.QUOTED)
        found.append(token)
        at += 1
        kept = at
    return tuple(found)


def _named(function: tuple[str, int, int], word: str, token: Token) -> tuple[str, int, int]:
    kind, depth, place = function
    order = ("DATA", "TIMECOL", *_ARGUMENTS[kind], "OFFSET")
    if place >= len(order) or order[place] != word:
        raise Fault(f"{kind}: arguments are named in this order: {', '.join(order)}", token.line)
    return kind, depth, place + 1


def window_rows(node: exp.Anonymous, source: Relation, columns: Columns, names: Names) -> Relation:
    """The rows of a table, each in the windows that it falls into."""
    kind = str(node.this).upper()
    arguments = list(node.expressions)[1:]
    asked = _ARGUMENTS[kind]
    if not len(asked) < len(arguments) + 1 <= len(asked) + 2:
        raise columns.fault(f"{kind} takes a table, DESCRIPTOR(time) and {', '.join(asked).lower()}", node)
    descriptor = arguments[0]
    if not isinstance(descriptor, exp.Anonymous) or str(descriptor.this).upper() != "DESCRIPTOR":
        raise columns.fault(f"{kind}: the second argument is DESCRIPTOR(time column)", node)
    inner = descriptor.expressions[0] if len(descriptor.expressions) == 1 else None
    found = columns.find(inner) if isinstance(inner, exp.Column) else None
    if found is None or found[1]:
        raise columns.fault(f"{kind}: DESCRIPTOR names a column of the table", node)
    field = found[0].field
    if field.type.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ):
        raise columns.fault(f"{kind}: '{found[0].shown}' is {field.type}, not a TIMESTAMP", node)
    lengths = [_microseconds(item, columns) for item in arguments[1:]]
    step, size = (lengths[0], lengths[0]) if kind == "TUMBLE" else (lengths[0], lengths[1])
    offset = lengths[len(asked)] if len(lengths) > len(asked) else 0
    if step <= 0 or size <= 0 or size % step:
        raise columns.fault(f"{kind}: the size is a whole multiple of the {asked[0].lower()}, both above zero", node)
    known = [shown for shown, _ in source.columns]
    for name in ("window_start", "window_end", "window_time"):
        if name in known:
            raise columns.fault(f"{kind} adds a column '{name}', which the table has already; rename it", node)
    own = (names.fresh("window_start"), names.fresh("window_end"), names.fresh("window_time"))
    window = Window(source.node, kind.lower(), field.name, size, step, offset, own)
    added = zip(("window_start", "window_end", "window_time"), window.fields[-3:], strict=True)
    return Relation(window, (*source.columns, *added))


def _microseconds(node: exp.Expr, columns: Columns) -> int:
    found = length_of(node)
    if found is None:
        raise columns.fault("a length of a window is written INTERVAL '10' MINUTES, in seconds to weeks", node)
    return found


def refuse_tables_of_functions(tokens: tuple[Token, ...]) -> None:
    """Table functions that are none of the windows.

    Raises:
        Fault: there is one.
    """
    for index, token in enumerate(tokens[:-2]):
        if token.is_word("TABLE") and tokens[index + 1].is_word("("):
            name = tokens[index + 2].value.upper()
            if name not in FUNCTIONS:
                raise Fault(
                    f"the table function {name} is not supported; windows are {', '.join(FUNCTIONS)}", token.line
                )
