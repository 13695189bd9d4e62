"""Hints of a query: what each changes, and which change nothing.

``/*+ STATE_TTL(...) */`` goes on to the planner. Hints about execution alone are passed over with a warning, and so are
options of a table about it; tables with other options are made by `hinted_tables` before a query is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.model import shown_option
from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.reader import Fault

STATE_TTL: Final = "STATE_TTL"
_EXECUTION: Final = {
    "BROADCAST": "how a join is carried out follows from its data",
    "SHUFFLE_HASH": "how a join is carried out follows from its data",
    "SHUFFLE_MERGE": "how a join is carried out follows from its data",
    "NEST_LOOP": "how a join is carried out follows from its data",
    "LOOKUP": "a batch asks for each of its keys once, and tries again until 'retry.deadline'",
}
"""Hints that change no result, with what takes their place."""
_OPTIONS_OF_EXECUTION: Final = {
    "scan.parallelism": "a batch is divided among tasks by its rows",
    "sink.parallelism": "a batch is divided among tasks by its rows",
    "scan.watermark.idle-timeout": "a partition without records does not count",
    "scan.topic-partition-discovery.interval": "each run looks for partitions",
}
"""Options in a hint OPTIONS that change no result, with what takes their place."""
_CALL: Final = re.compile(r"([A-Za-z_]+)\s*\(((?:'[^']*'|[^()'])*)\)")
_OPTION: Final = re.compile(r"'([^']*)'\s*=\s*'([^']*)'")
_CALLS: Final = re.compile(rf"/\*\+\s*(?:{_CALL.pattern}[\s,]*)+\*/")


def planned_hints(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens of a query without hints that change no result; of others STATE_TTL alone stays, behind SELECT.

    Raises:
        Fault: a hint that would change a result otherwise, or that stands where it says nothing.
    """
    found: list[Token] = []
    for at, token in enumerate(tokens):
        if token.kind is not TokenKind.HINT:
            found.append(token)
            continue
        times: list[str] = []
        for name, arguments in _calls(token):
            if name == STATE_TTL:
                times.append(f"{STATE_TTL}({arguments})")
            elif name == "OPTIONS":
                refuse_options(arguments, table_before(tokens, at), token.line)
            elif name not in _EXECUTION:
                raise Fault(
                    f"the hint {name} is not one of STATE_TTL, OPTIONS, {', '.join(_EXECUTION)}: remove it", token.line
                )
        if times:
            if not (at and tokens[at - 1].is_word("SELECT")):
                raise Fault("the hint STATE_TTL stands behind SELECT: SELECT /*+ STATE_TTL('t' = '1 d') */", token.line)
            text = f"/*+ {', '.join(times)} */"
            found.append(replace(token, text=text, value=text))
    return tuple(found)


def hint_warnings(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """Yield a warning with its line for each hint, and each option in one, without effect."""
    for token in tokens:
        if token.kind is not TokenKind.HINT or not _CALLS.fullmatch(token.value):
            continue
        for name, arguments in _calls(token):
            if name in _EXECUTION:
                yield f"the hint {name} has no effect: {_EXECUTION[name]}", token.line
            elif name == "OPTIONS":
                for option, _ in _OPTION.findall(arguments):
                    if option in _OPTIONS_OF_EXECUTION:
                        yield f"the hint OPTIONS('{option}') has no effect: {_OPTIONS_OF_EXECUTION[option]}", token.line


def refuse_options(arguments: str, table: str, line: int) -> None:
    """Refuses options in a hint that would change what a statement reads, where no declared table stands before it.

    Args:
        arguments: between the parentheses of OPTIONS.
        table: that the hint stands behind; empty if it stands behind none.

    Raises:
        Fault: one of them does; with what to declare instead.
    """
    options = _OPTION.findall(arguments)
    if not options:
        raise Fault("the hint OPTIONS takes options: OPTIONS('scan.startup.mode' = 'latest-offset')", line)
    if any(option not in _OPTIONS_OF_EXECUTION for option, _ in options):
        name = table or "t"
        raise Fault(
            f"the hint OPTIONS stands behind a declared table, and '{name}' is none: declare one, CREATE TABLE {name}_2"
            " WITH (...) LIKE ..., and name that here",
            line,
        )


def changing_options(token: Token) -> dict[str, str]:
    """The options in a hint that change what is read or written of a table.

    Raises:
        Fault: the hint is not written as one.
    """
    arguments = [given for name, given in _calls(token) if name == "OPTIONS"]
    found = [pair for given in arguments for pair in _OPTION.findall(given)]
    return {name: value for name, value in found if name not in _OPTIONS_OF_EXECUTION}


def without_options(token: Token) -> list[Token]:
    """A hint without the options that `changing_options` finds; nothing where nothing is left of it."""
    calls = []
    for name, arguments in _calls(token):
        if name == "OPTIONS":
            kept = [pair for pair in _OPTION.findall(arguments) if pair[0] in _OPTIONS_OF_EXECUTION]
            arguments = ", ".join(f"'{option}' = '{value}'" for option, value in kept)
        if arguments:
            calls.append(f"{name}({arguments})")
    text = f"/*+ {', '.join(calls)} */"
    return [replace(token, text=text, value=text)] if calls else []


def without_secrets(token: Token) -> Token:
    """A token as it may be shown: a hint without the values of secret options."""
    if token.kind is not TokenKind.HINT:
        return token
    hidden = _OPTION.sub(lambda found: f"'{found[1]}' = '{shown_option(found[1], found[2])}'", token.text)
    return replace(token, text=hidden)


def table_before(tokens: Sequence[Token], at: int) -> str:
    """The name that stands before a place; empty if none does."""
    return tokens[at - 1].value if at and tokens[at - 1].kind in (TokenKind.WORD, TokenKind.QUOTED) else ""


def _calls(token: Token) -> list[tuple[str, str]]:
    if not _CALLS.fullmatch(token.value):
        raise Fault("a hint is written /*+ NAME(...) */ or /*+ NAME(...), NAME(...) */", token.line)
    return [(name.upper(), arguments) for name, arguments in _CALL.findall(token.value)]
