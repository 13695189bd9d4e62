"""Contracts: the columns and keys of a table that its consumers rely on, as options `contract.NAME` of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, TypeSyntaxError, parse_type

PREFIX: Final = "contract."
_OPTION: Final = re.compile(r"contract\.([A-Za-z0-9_-]+)(\.key)?")
_COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`]+))(?:\s+(.+?))?\s*")


@dataclass(frozen=True)
class Contract:
    """The columns and the key that a consumer relies on.

    Attributes:
        consumer: its name, as in the option.
        columns: name and type; the type is None where any will do.
        key: the primary key that it relies on; empty where it relies on none.
    """

    consumer: str
    columns: tuple[tuple[str, LogicalType | None], ...]
    key: tuple[str, ...] = ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, those of the key among them."""
        return tuple(dict.fromkeys((*(name for name, _ in self.columns), *self.key)))


def contracts_of(table: Table) -> list[Contract]:
    """Return the contracts of a table of a project without errors, in order of their consumers."""
    columns: dict[str, tuple[tuple[str, LogicalType | None], ...]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for name, value in (*table.platform.items(), *table.options.items()):
        if (match := _OPTION.fullmatch(name)) is None:
            continue
        if match[2]:
            keys[match[1]] = tuple(column for column, _ in _columns(value))
        else:
            columns[match[1]] = tuple(_columns(value))
    return [Contract(name, columns.get(name, ()), keys.get(name, ())) for name in sorted(columns.keys() | keys.keys())]


def contract_problems(table: Table) -> list[Problem]:
    """Return one problem per broken promise of a table, with the name of the consumer that relies on it."""
    problems = [problem for name, value in table.options.items() if (problem := _unread(table, name, value))]
    if problems or not table.columns:
        return problems
    known = {column.name: column.type or column.expression_type for column in table.columns}
    for contract in contracts_of(table):
        option, consumer = f"{PREFIX}{contract.consumer}", contract.consumer
        place = table.options.location(option) or table.location
        for name, wanted in contract.columns:
            declared = known.get(name)
            if name not in known:
                problems.append(
                    Problem(
                        f"table '{table.name}': consumer '{consumer}' relies on column '{name}', which is not"
                        f" declared{nearest(name, known)}; keep the column, or agree with '{consumer}' and change"
                        f" '{option}'",
                        place,
                    )
                )
            elif wanted is not None and declared is not None and _bare(wanted) != _bare(declared):
                problems.append(
                    Problem(
                        f"table '{table.name}': consumer '{consumer}' relies on column '{name}' of type"
                        f" {_bare(wanted)}, which is declared as {_bare(declared)}; keep the type, or agree with"
                        f" '{consumer}' and change '{option}'",
                        place,
                    )
                )
        if contract.key and contract.key != table.primary_key:
            key = ", ".join(table.primary_key) or "none"
            problems.append(
                Problem(
                    f"table '{table.name}': consumer '{consumer}' relies on the primary key"
                    f" ({', '.join(contract.key)}), and the key is ({key}); keep the key, or agree with '{consumer}'"
                    f" and change '{option}.key'",
                    table.options.location(f"{option}.key") or table.location,
                )
            )
    return problems


def _unread(table: Table, name: str, value: str) -> Problem | None:
    """Return the problem of an option `contract.NAME` that cannot be read, else None."""
    if not name.startswith(PREFIX):
        return None
    place = table.options.location(name) or table.location
    try:
        stated = list(_columns(value)) if _OPTION.fullmatch(name) else []
    except TypeSyntaxError as error:
        return Problem(
            f"table '{table.name}': option '{name}' takes columns with or without types, such as"
            f" 'id, amount DECIMAL(10, 2)': {error}",
            place,
        )
    if stated:
        return None
    return Problem(
        f"table '{table.name}': option '{name}' is 'contract.NAME' with columns, or 'contract.NAME.key' with the"
        " primary key that the consumer NAME relies on",
        place,
    )


def _bare(kind: LogicalType) -> LogicalType:
    return replace(kind, nullable=True)


def _columns(text: str) -> Iterator[tuple[str, LogicalType | None]]:
    """Yield the columns of an option's value.

    Raises:
        TypeSyntaxError: one is no name, or its type is none.
    """
    for part in _parts(text):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise TypeSyntaxError(f"'{part.strip()}' is no column")
        name = match[1].replace("``", "`") if match[1] else match[2]
        yield name, parse_type(match[3]) if match[3] else None


def _parts(text: str) -> Iterator[str]:
    """Yield what commas outside of brackets separate; nothing for an empty text."""
    depth, part = 0, ""
    for char in text:
        depth += (char in "(<") - (char in ")>")
        if char == "," and depth == 0:
            yield part
            part = ""
        else:
            part += char
    if part.strip() or text.strip().endswith(","):
        yield part
