"""Data ingestion YAML: ``source``, ``sink``, ``route`` and ``transform``, as Alibaba's Realtime Compute writes it.

Each table of the project that the source names is copied to a table of the sink's connector: same columns, same primary
key, the sink's options. On an upsert-kafka sink the topic is the ``sink-table`` of the route (or the table's own name),
key and value are JSON, and the value holds the key columns too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.connector import Connector, Readable
from upsert_platform.declarations.located import Located, sql_tokens
from upsert_platform.errors import Problem, SourceLocation
from upsert_platform.model import Column, Options, Table
from upsert_platform.mysql.options import read_source
from upsert_platform.options import nearest
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    Declarations,
    InsertDeclaration,
    KeyDeclaration,
    TableDeclaration,
)
from upsert_platform.sql.lexer import shown
from upsert_platform.types import quote_name

_SECTIONS: Final = ("source", "sink", "route", "transform", "pipeline")
_ROUTE_ENTRIES: Final = ("source-table", "sink-table", "replace-symbol", "description")
_TRANSFORM_ENTRIES: Final = ("source-table", "projection", "filter", "description")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file, its variables replaced."""

    content: Located

    def declare(self, tables: Mapping[str, Table], connectors: Mapping[str, Connector]) -> Declarations:
        """Tables and inserts that the pipeline stands for.

        Args:
            tables: those that the project declares, by name.
            connectors: by name.
        """
        return _Reader(self.content, tables, connectors).read()


def is_pipeline(content: Located) -> bool:
    """Whether a YAML document looks like a pipeline."""
    return "source" in content.entries or "sink" in content.entries


def table_pattern(text: str) -> re.Pattern[str]:
    """A table name pattern: ``.`` separates names, ``\\.`` is any character, the rest is a regular expression.

    Raises:
        re.error: it is none.
    """
    return re.compile(text.strip().replace(r"\.", "\0").replace(".", r"\.").replace("\0", "."))


class _Reader:
    def __init__(self, content: Located, tables: Mapping[str, Table], connectors: Mapping[str, Connector]) -> None:
        self.content = content
        self.tables = tables
        self.readable = [name for name, found in connectors.items() if isinstance(found, Readable)]
        self.sinks = {name: found for name, found in connectors.items() if found.pipeline_options is not None}
        self.found = Declarations()

    def error(self, message: str, location: SourceLocation, severity: str = "error") -> None:
        self.found.problems.append(Problem(f"pipeline: {message}", location, severity))

    def read(self) -> Declarations:
        entries = self.content.entries
        for name, value in entries.items():
            if name not in _SECTIONS:
                self.error(f"unknown section '{name}'{nearest(name, _SECTIONS)}", value.location)
        for name in ("source", "sink"):
            if not entries.get(name, self.content).entries or name not in entries:
                self.error(f"section '{name}' is missing: it has a type and options", self.content.location)
        if self.found.problems:
            return self.found
        self._judge_pipeline(entries.get("pipeline"))
        names = self._source_tables(entries["source"])
        routes = self._entries("route", _ROUTE_ENTRIES, ("source-table", "sink-table"))
        transforms = self._entries("transform", _TRANSFORM_ENTRIES, ("source-table",))
        sink = entries["sink"]
        connector = (sink.entries["type"].text or "").strip().lower() if "type" in sink.entries else ""
        if connector not in self.sinks:
            self.error(f"sink: 'type' is one of {', '.join(self.sinks)}, not '{connector}'", sink.location)
            return self.found
        used: set[int] = set()
        for name in names:
            sink_name, location = name, sink.location
            for index, route in enumerate(routes):
                if self._matches(route.entries["source-table"], name):
                    used.add(index)
                    sink_name = _routed(route, name)
                    location = route.location
            self._declare(self.tables[name], sink_name, location, connector, sink, transforms)
        for index, route in enumerate(routes):
            if index not in used and names:
                pattern = route.entries["source-table"]
                self.error(f"route: source-table '{pattern.text}' is not a table of the source", pattern.location)
        return self.found

    def _judge_pipeline(self, section: Located | None) -> None:
        for name, value in (section.entries if section else {}).items():
            if name != "name":
                reason = "how often and how parallel a pipeline runs is set in Dagster and Spark"
                self.error(f"'{name}' has no effect: {reason}", value.location, "warning")

    def _entries(self, section: str, known: tuple[str, ...], needed: tuple[str, ...]) -> list[Located]:
        good: list[Located] = []
        for item in self.content.entries[section].items if section in self.content.entries else ():
            unknown = [name for name in item.entries if name not in known]
            missing = [name for name in needed if not (name in item.entries and item.entries[name].text)]
            for name in unknown:
                place = item.entries[name].location
                self.error(f"{section}: unknown entry '{name}'{nearest(name, known)}", place)
            for name in missing:
                self.error(f"{section}: '{name}' is missing", item.location)
            if not unknown and not missing:
                good.append(item)
        return good

    def _matches(self, pattern: Located, name: str) -> bool:
        for text in (pattern.text or "").split(","):
            try:
                if table_pattern(text).fullmatch(name):
                    return True
            except re.error:
                self.error(f"'{text.strip()}' is not a pattern of table names", pattern.location)
                return False
        return False

    def _source_tables(self, source: Located) -> list[str]:
        """Names of the declared tables that the source stands for."""
        kind = (source.entries["type"].text or "").strip().lower() if "type" in source.entries else ""
        if not kind:
            self.error("source: 'type' is missing: upsert-kafka or kafka", source.location)
            return []
        tables = source.entries.get("tables")
        if tables is None or not tables.text:
            self.error("source: 'tables' is missing: names of tables that the project declares", source.location)
            return []
        names = [name for name in self.tables if self._matches(tables, name)]
        if not names:
            told = f"source: '{tables.text}' matches no table that the project declares"
            if kind == "mysql":
                self._judge_mysql(source)
            if kind not in self.readable:
                read = (
                    "does not run pipelines from 'mysql' yet" if kind == "mysql" else f"does not read '{kind}' itself"
                )
                told += (
                    f"; the platform {read}. Let its changes arrive in a topic, and declare that"
                    f" topic by CREATE TABLE `{tables.text}` (...) with 'connector' = 'kafka' and a CDC format, or with"
                    " 'upsert-kafka'"
                )
            self.error(told, tables.location)
            return []
        rest = [name for name in source.entries if name not in ("type", "name", "tables")]
        if kind in self.readable:
            for name in rest:
                told = f"source: option '{name}' belongs into the WITH clause of the declared table"
                self.error(told, source.entries[name].location)
            for name in names:
                declared = self.tables[name].connector
                if declared != kind:
                    self.error(f"source: table '{name}' has the connector '{declared}', not '{kind}'", source.location)
        else:
            unused = f" ({', '.join(rest)} are not used)" if rest else ""
            told = f"source: rows are read from the topics of {', '.join(names)} as declared, not from {kind}{unused}"
            self.error(told, source.location, "warning")
        return names

    def _judge_mysql(self, source: Located) -> None:
        """Says what is wrong with the options of a MySQL source, so that they are right once it is run."""
        options = {name: value for name, value in source.entries.items() if name not in ("type", "name")}
        for name, value in options.items():
            if value.text is None:
                self.error(f"source: option '{name}' takes one value", value.location)
        values = {name: value.text for name, value in options.items() if value.text is not None}
        places = {name: value.location for name, value in options.items()}
        _, problems = read_source(Options(values, places), location=source.location)
        for problem in problems:
            self.error(problem.message, problem.location or source.location, problem.severity)

    def _declare(
        self,
        table: Table,
        sink_name: str,
        location: SourceLocation,
        connector: str,
        sink: Located,
        transforms: list[Located],
    ) -> None:
        if sink_name in self.tables:
            self.error(
                f"the sink table '{sink_name}' has the name of a declared table; route '{table.name}' to another"
                " sink-table",
                location,
            )
            return
        values = {
            "connector": connector,
            self.sinks[connector].place_option: sink_name,
            **(self.sinks[connector].pipeline_options or {}),
        }
        places = dict.fromkeys(values, location)
        for name, value in sink.entries.items():
            if name in ("type", "name"):
                continue
            if value.text is None:
                self.error(f"sink: option '{name}' takes one value", value.location)
                continue
            values[name], places[name] = value.text, value.location
        transform = next((item for item in transforms if self._matches(item.entries["source-table"], table.name)), None)
        columns = self._projected(table, transform)
        comment = sink.entries["name"].text if "name" in sink.entries else None
        self.found.tables.append(
            TableDeclaration(
                name=sink_name,
                location=location,
                columns=tuple(ColumnDeclaration(column.name, location, column.type) for column in columns),
                key=KeyDeclaration(table.primary_key, location) if table.primary_key else None,
                options=Options(values, places),
                comment=comment,
            )
        )
        text = f"SELECT {', '.join(quote_name(column.name) for column in columns)} FROM {quote_name(table.name)}"
        condition = transform.entries.get("filter") if transform is not None else None
        tokens = sql_tokens(text, location, self.found.problems)
        if condition is not None and condition.text:
            tokens += sql_tokens(f"WHERE {condition.text}", condition.location, self.found.problems)
        sql = f"INSERT INTO {quote_name(sink_name)} {shown(tokens)}"
        self.found.inserts.append(InsertDeclaration(sink_name, location, tokens, {}, (), sql))

    def _projected(self, table: Table, transform: Located | None) -> list[Column]:
        columns = list(table.physical_columns)
        projection = transform.entries.get("projection") if transform is not None else None
        if projection is None or (projection.text or "").strip() in ("", "*", "\\*"):
            return columns
        by_name = {column.name: column for column in columns}
        chosen: list[Column] = []
        for part in (projection.text or "").split(","):
            name = part.strip().strip("`")
            if name not in by_name:
                self.error(
                    f"transform: projection takes columns of '{table.name}', not '{name}'{nearest(name, by_name)};"
                    " for expressions declare the target in SQL and INSERT INTO it",
                    projection.location,
                )
            else:
                chosen.append(by_name[name])
        return chosen or columns


def _routed(route: Located, name: str) -> str:
    sink_name = (route.entries["sink-table"].text or "").strip()
    symbol = route.entries.get("replace-symbol")
    if symbol is not None and symbol.text:
        return sink_name.replace(symbol.text, name.rsplit(".", 1)[-1])
    return sink_name
