"""Tables of a Flink job on the servers of this machine: their addresses become variables, and logins are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_PART: Final = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|'(?P<name>[^'\n]+)'\s*=\s*'(?P<value>(?:[^']|'')*)'|'(?:[^']|'')*'|(?P<end>;)",
    re.DOTALL,
)
_LOGIN: Final = re.compile(r"properties\.(security\.protocol|sasl\..+|ssl\..+)")
_CREATE: Final = "auto.create"
_GONE: Final = "\0"
"""Stands for the last option of a list that is left out, until the comma before it is."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The options with which tables of a connector reach a server of this machine.

    Attributes:
        variables: option to the variable that `upsert-platform local up` sets.
        creates: whether a missing table is created only if its declaration says so.
    """

    variables: Mapping[str, str]
    creates: bool = False


def on_local_servers(text: str, connectors: Mapping[str, LocalOptions]) -> tuple[str, list[tuple[int, str]]]:
    """Return SQL whose tables are on local servers, and what was changed, by line.

    Args:
        connectors: name to the options of its tables.
    """
    edits: list[tuple[int, int, str]] = []
    changes: list[tuple[int, str]] = []
    for options in _statements(text):
        by_name = {match["name"]: match for match in options}
        local = connectors.get(by_name["connector"]["value"]) if "connector" in by_name else None
        if local is None:
            continue
        for name, match in by_name.items():
            line = text.count("\n", 0, match.start()) + 1
            if name in local.variables:
                variable = f"${{{local.variables[name]}}}"
                edits.append((match.start("value"), match.end("value"), variable))
                changes.append((line, f"'{name}' is now {variable}"))
            elif _LOGIN.fullmatch(name):
                edits.append(_left_out(text, match))
                changes.append((line, f"'{name}' is left out: local servers ask for no login"))
        if local.creates and _CREATE not in by_name:
            place = by_name["connector"]
            edits.append((place.end(), place.end(), f", '{_CREATE}' = 'true'"))
            changes.append((text.count("\n", 0, place.start()) + 1, f"'{_CREATE}' = 'true' is added"))
    for start, end, put in sorted(edits, reverse=True):
        text = text[:start] + put + text[end:]
    return re.sub(rf",?\s*{_GONE}", "", text), sorted(changes)


def _statements(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the options of each statement."""
    found: list[re.Match[str]] = []
    for match in _PART.finditer(text):
        if match["end"]:
            yield found
            found = []
        elif match["name"]:
            found.append(match)
    yield found


def _left_out(text: str, option: re.Match[str]) -> tuple[int, int, str]:
    """Return the edit that takes an option out of its list, with its comma."""
    start = option.start() - (len(text[: option.start()]) - len(text[: option.start()].rstrip()))
    comma = re.compile(r"\s*,").match(text, option.end())
    return (start, comma.end(), "") if comma else (start, option.end(), _GONE)
