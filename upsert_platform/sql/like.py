"""CREATE TABLE ... LIKE: what a table takes over from another one.

Defaults as in Flink: INCLUDING ALL, OVERWRITING OPTIONS. Physical columns are always taken over, first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import ColumnKind, Options
from upsert_platform.sql.declarations import ColumnDeclaration, TableDeclaration

_FEATURE = {ColumnKind.METADATA: "METADATA", ColumnKind.COMPUTED: "GENERATED"}


def apply_likes(tables: Mapping[str, TableDeclaration], problems: list[Problem]) -> dict[str, TableDeclaration]:
    """Tables without their LIKE clauses; a problem for each base that is unknown or that leads back to the table."""
    done: dict[str, TableDeclaration] = {}
    failed: set[str] = set()

    def resolve(name: str, waiting: tuple[str, ...]) -> TableDeclaration | None:
        if name in done or name in failed:
            return done.get(name)
        table = tables[name]
        if table.like is None:
            done[name] = table
            return table
        base_name, location = table.like.table, table.like.location
        base: TableDeclaration | None = None
        if base_name not in tables:
            problems.append(Problem(f"table '{name}': LIKE names '{base_name}', which is not declared", location))
        elif base_name in (*waiting, name):
            problems.append(Problem(f"table '{name}': LIKE leads back to the table itself", location))
        else:
            base = resolve(base_name, (*waiting, name))
        if base is None:
            failed.add(name)
            return None
        done[name] = _merge(table, base, problems)
        return done[name]

    for name in tables:
        resolve(name, ())
    return {name: done[name] for name in tables if name in done}


def _merge(table: TableDeclaration, base: TableDeclaration, problems: list[Problem]) -> TableDeclaration:
    like = table.like
    assert like is not None

    def rule(feature: str, default: str = "INCLUDING") -> str:
        return like.rules.get(feature, like.rules.get("ALL", default))

    def clash(what: str, remedy: str) -> None:
        message = f"table '{table.name}': {what} is declared here and in '{base.name}'; {remedy}"
        problems.append(Problem(message, like.location))

    own = {column.name for column in table.columns}
    columns: list[ColumnDeclaration] = []
    for column in base.columns:
        feature = _FEATURE.get(column.kind)
        if feature is not None and rule(feature) == "EXCLUDING":
            continue
        if column.name in own:
            if feature is None or rule(feature) != "OVERWRITING":
                clash(f"column '{column.name}'", f"{f'say OVERWRITING {feature}, or ' if feature else ''}rename it")
            continue
        columns.append(column)
    key, partitioned_by, watermark = table.key, table.partitioned_by, table.watermark
    partition_location = table.partition_location
    if rule("CONSTRAINTS") != "EXCLUDING" and base.key is not None:
        if key is not None:
            clash("a PRIMARY KEY", "say EXCLUDING CONSTRAINTS")
        key = key or base.key
    if rule("PARTITIONS") != "EXCLUDING" and base.partitioned_by:
        if partitioned_by:
            clash("PARTITIONED BY", "say EXCLUDING PARTITIONS")
        else:
            partitioned_by, partition_location = base.partitioned_by, base.partition_location
    if rule("WATERMARKS") != "EXCLUDING" and base.watermark is not None:
        if watermark is not None and rule("WATERMARKS") != "OVERWRITING":
            clash("a WATERMARK", "say OVERWRITING WATERMARKS or EXCLUDING WATERMARKS")
        watermark = watermark or base.watermark
    options = table.options
    if (options_rule := rule("OPTIONS", "OVERWRITING")) != "EXCLUDING":
        if options_rule == "INCLUDING" and "OPTIONS" in like.rules:
            for name in sorted(set(options) & set(base.options)):
                clash(f"option '{name}'", "say OVERWRITING OPTIONS")
        values = {**base.options, **table.options}
        places = {name: table.options.location(name) or base.options.location(name) for name in values}
        options = Options(values, {name: place for name, place in places.items() if place is not None})
    return replace(
        table,
        columns=(*columns, *table.columns),
        key=key,
        partitioned_by=partitioned_by,
        partition_location=partition_location,
        watermark=watermark,
        options=options,
        comment=table.comment or base.comment,
        like=None,
        elided=table.elided or base.elided,
        faulty=table.faulty or base.faulty,
    )
