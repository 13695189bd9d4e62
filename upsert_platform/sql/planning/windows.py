"""Window table functions: ``FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES))``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Session, Window
from upsert_platform.core.types import TypeName
from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.planning.scope import Columns, Names, Relation, length_of, signed_length
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.user_functions import user_function

FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_ARGUMENTS: Final = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE"), "SESSION": ("GAP",)}


_PARTITIONED: Final = "SESSION_PARTITIONED_BY"
"""How the columns of ``SESSION(TABLE t PARTITION BY a, ...)`` are handed to the parser: as a further argument."""
_ADDED: Final = ("window_start", "window_end", "window_time")


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
        if functions and functions[-1][0] == "SESSION" and token.is_word("PARTITION"):
            keys, at = _partition(tokens, at)
            found += keys
            kept = at
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
    order = ("DATA", "TIMECOL", *_ARGUMENTS[kind], *(() if kind == "SESSION" else ("OFFSET",)))
    if place >= len(order) or order[place] != word:
        raise Fault(f"{kind}: arguments are named in this order: {', '.join(order)}", token.line)
    return kind, depth, place + 1


def _partition(tokens: tuple[Token, ...], at: int) -> tuple[list[Token], int]:
    """``PARTITION BY a, b`` behind the table of SESSION as a further argument, and where what follows begins."""
    like, at = tokens[at], at + 2
    names: list[Token] = []
    while at < len(tokens) and not tokens[at].is_word("DESCRIPTOR"):
        following = [item.value for item in tokens[at + 1 : at + 3]]
        if following == ["=", ">"] or (tokens[at].is_word(")") and not tokens[at + 1].is_word(",")):
            break
        names.append(tokens[at])
        at += 1
    while names and names[-1].is_word(","):
        names.pop()
    if names and names[0].is_word("("):
        names = names[1:-1]

    def added(text: str) -> Token:
        kind = TokenKind.WORD if text == _PARTITIONED else TokenKind.SYMBOL
        return replace(like, kind=kind, text=text, value=text, spaced=False)

    return [*map(added, (",", _PARTITIONED, "(")), *names, *map(added, (")", ","))], at


def window_rows(node: exp.Anonymous, source: Relation, columns: Columns, names: Names) -> Relation:
    """The rows of a table, each in the windows that it falls into."""
    kind = str(node.this).upper()
    arguments = list(node.expressions)[1:]
    asked = _ARGUMENTS[kind]
    partition: list[str] = []
    if kind == "SESSION" and arguments and _is_partition(arguments[0]):
        partition = [_of_table(item, kind, columns, node) for item in arguments.pop(0).expressions]
    if not len(asked) < len(arguments) <= len(asked) + (1 if kind == "SESSION" else 2):
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
    lengths = [_microseconds(item, columns) for item in arguments[1 : len(asked) + 1]]
    offset = _offset(arguments[len(asked) + 1], columns) if len(arguments) > len(asked) + 1 else 0
    _check_names(source, kind, columns, node)
    own = (names.fresh("window_start"), names.fresh("window_end"), names.fresh("window_time"))
    if kind == "SESSION":
        session = Session(
            source.node, tuple(dict.fromkeys(partition)), field.name, _gap(lengths[0], columns, node), own
        )
        return _with_window(source, session)
    step, size = (lengths[0], lengths[0]) if kind == "TUMBLE" else (lengths[0], lengths[1])
    if step <= 0 or size <= 0 or size % step:
        raise columns.fault(f"{kind}: the size is a whole multiple of the {asked[0].lower()}, both above zero", node)
    # Windows that begin earlier than a multiple of their size are those that begin later than the one before.
    offset = offset if offset >= 0 else offset % size
    return _with_window(source, Window(source.node, kind.lower(), field.name, size, step, offset, own))


def _check_names(source: Relation, kind: str, columns: Columns, node: exp.Expr) -> None:
    known = [shown for shown, _ in source.columns]
    for name in _ADDED:
        if name in known:
            raise columns.fault(f"{kind} adds a column '{name}', which the table has already; rename it", node)


def _with_window(source: Relation, window: Window | Session) -> Relation:
    return Relation(window, (*source.columns, *zip(_ADDED, window.fields[-3:], strict=True)))


def _gap(length: int, columns: Columns, node: exp.Expr) -> int:
    if length <= 0:
        raise columns.fault("SESSION: the gap is above zero", node)
    return length


def _is_partition(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == _PARTITIONED


def _of_table(node: exp.Expr, kind: str, columns: Columns, window: exp.Expr) -> str:
    found = columns.find(node) if isinstance(node, exp.Column) else None
    if found is None or found[1]:
        raise columns.fault(f"{kind}: PARTITION BY names columns of the table", window)
    return found[0].field.name


def _microseconds(node: exp.Expr, columns: Columns) -> int:
    found = length_of(node)
    if found is None:
        raise columns.fault("a length of a window is written INTERVAL '10' MINUTES, in seconds to weeks", node)
    return found


def _offset(node: exp.Expr, columns: Columns) -> int:
    """Microseconds of an offset, which may be below zero: ``INTERVAL '-5' MINUTES`` or ``-INTERVAL '5' MINUTES``."""
    found = signed_length(node)
    return found if found is not None else _microseconds(node, columns)


def refuse_tables_of_functions(tokens: tuple[Token, ...]) -> None:
    """Table functions that are none of the windows.

    Raises:
        Fault: there is one.
    """
    for index, token in enumerate(tokens[:-2]):
        if token.is_word("TABLE") and tokens[index + 1].is_word("("):
            name = tokens[index + 2].value.upper()
            rows = name in ("SELECT", "WITH", "(") and index > 0 and tokens[index - 1].value in ("(", ">")
            own = user_function(name) is not None
            lateral = own and index > 0 and tokens[index - 1].is_word("LATERAL")
            if own and not lateral:
                raise Fault(f"{name} stands in LATERAL TABLE({name}(...)), behind the table that it reads", token.line)
            if name not in FUNCTIONS and not (rows or lateral):
                raise Fault(
                    f"the table function {name} is not supported; windows are {', '.join(FUNCTIONS)}, others are"
                    " declared by CREATE FUNCTION",
                    token.line,
                )
