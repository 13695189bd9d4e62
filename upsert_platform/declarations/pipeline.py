"""Data ingestion YAML: ``source``, ``sink``, ``route`` and ``transform``, as Alibaba's Realtime Compute writes it.

Each table that the source names, a declared one or one of a MySQL server, is copied to a table of the sink's
connector: same columns, same primary key, the sink's options. On an upsert-kafka sink the topic is the ``sink-table``
of the route (or the table's own name), key and value are JSON, and the value holds the key columns too. Tables that are
routed to one sink table are its union.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.connector import Connector, Readable
from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import TEXTS, LogicalType, TypeName, quote_name
from upsert_platform.declarations.located import Located, sql_tokens
from upsert_platform.declarations.pipeline_source import (
    BEHAVIORS,
    Describe,
    declaration_of,
    named_in_database,
    read_mysql_source,
)
from upsert_platform.declarations.pipeline_transform import TRANSFORM_ENTRIES, Flow, Transforms
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    Declarations,
    InsertDeclaration,
    KeyDeclaration,
    TableDeclaration,
)
from upsert_platform.sql.lexer import shown

_SECTIONS: Final = ("source", "sink", "route", "transform", "pipeline")
_ROUTE_ENTRIES: Final = ("source-table", "sink-table", "replace-symbol", "description")
_GUARANTEE: Final = "sink.delivery-guarantee"
_ROUTE_MODES: Final = ("all_match", "first_match")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file, its variables replaced."""

    content: Located

    def declare(
        self,
        tables: Mapping[str, Table],
        connectors: Mapping[str, Connector],
        *,
        describe: Describe | None = None,
        defaults: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Declarations:
        """Tables and inserts that the pipeline stands for.

        Args:
            tables: those that the project declares, by name.
            connectors: by name.
            describe: asks a database for its tables; without it they stay unknown.
            defaults: connector to options that the source gets where it declares none.
        """
        return _Reader(self.content, tables, connectors, describe, defaults or {}).read()


def is_pipeline(content: Located) -> bool:
    """Return whether a YAML document looks like a pipeline."""
    return "source" in content.entries or "sink" in content.entries


def table_pattern(text: str) -> re.Pattern[str]:
    """A table name pattern: ``.`` separates names, ``\\.`` is any character, the rest is a regular expression.

    Raises:
        re.error: it is none.
    """
    return re.compile(text.strip().replace(r"\.", "\0").replace(".", r"\.").replace("\0", "."))


class _Reader:
    def __init__(
        self,
        content: Located,
        tables: Mapping[str, Table],
        connectors: Mapping[str, Connector],
        describe: Describe | None,
        defaults: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.defaults = defaults
        self.content = content
        self.tables = tables
        self.described: dict[str, Table] = {}
        self.describe = describe
        self.behavior, self.route_mode = BEHAVIORS[0], _ROUTE_MODES[0]
        self.readable = [name for name, found in connectors.items() if isinstance(found, Readable)]
        self.asked = {found.pipeline_source: name for name, found in connectors.items() if found.pipeline_source}
        written = [found for found in connectors.values() if found.pipeline_options is not None]
        self.sinks = {found.pipeline_type or found.name: found for found in written}
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
        transforms = self._entries("transform", TRANSFORM_ENTRIES, ("source-table",))
        sink = entries["sink"]
        connector = (sink.entries["type"].text or "").strip().lower() if "type" in sink.entries else ""
        if connector not in self.sinks:
            self.error(f"sink: 'type' is one of {', '.join(self.sinks)}, not '{connector}'", sink.location)
            return self.found
        used: set[int] = set()
        flows: dict[str, list[tuple[Flow, SourceLocation]]] = {}
        for name in names:
            table = self.described.get(name) or self.tables[name]
            entry = next((item for item in transforms if self._matches(item.entries["source-table"], name)), None)
            flow = Transforms(self.found.problems).flow(table, entry)
            for sink_name, place in self._sinks_of(name, routes, used) or [(name, sink.location)]:
                flows.setdefault(sink_name, []).append((flow, place))
        for sink_name, found in flows.items():
            self._declare(sink_name, found, connector, sink)
        for index, route in enumerate(routes):
            if index not in used and names:
                pattern = route.entries["source-table"]
                self.error(f"route: source-table '{pattern.text}' is not a table of the source", pattern.location)
        return self.found

    def _sinks_of(self, name: str, routes: list[Located], used: set[int]) -> list[tuple[str, SourceLocation]]:
        """Sink tables of a table, by the routes that are for it."""
        found: dict[str, SourceLocation] = {}
        for index, route in enumerate(routes):
            if not self._matches(route.entries["source-table"], name):
                continue
            used.add(index)
            if not found or self.route_mode == _ROUTE_MODES[0]:
                found.setdefault(_routed(route, name), route.location)
        return list(found.items())

    def _judge_pipeline(self, section: Located | None) -> None:
        for name, value in (section.entries if section else {}).items():
            text = (value.text or "").strip().lower()
            if name == "schema.change.behavior":
                self.behavior = self._one_of(name, text, BEHAVIORS, value) or self.behavior
            elif name == "route-mode":
                self.route_mode = self._one_of(name, text.replace("-", "_"), _ROUTE_MODES, value) or self.route_mode
            elif name != "name":
                reason = "how often and how parallel a pipeline runs is set in Dagster and Spark"
                self.error(f"'{name}' has no effect: {reason}", value.location, "warning")

    def _one_of(self, name: str, text: str, known: tuple[str, ...], place: Located) -> str | None:
        if text not in known:
            self.error(f"'{name}' is one of {', '.join(known)}, not '{place.text}'", place.location)
            return None
        return text

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
        if not names and kind in self.asked:
            return self._tables_of_server(source, self.asked[kind])
        if not names:
            told = f"source: '{tables.text}' matches no table that the project declares"
            if kind not in self.readable:
                told += (
                    f"; the platform does not read '{kind}' itself. Let its changes arrive in a topic, and declare that"
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

    def _tables_of_server(self, source: Located, connector: str) -> list[str]:
        """Names of the server's tables that the source stands for; they are declared."""
        problems = self.found.problems
        asked = read_mysql_source(
            source,
            connector=connector,
            behavior=self.behavior,
            problems=problems,
            defaults=self.defaults.get(connector, {}),
        )
        if asked is None:
            return []
        if self.describe is None:
            told = "source: the columns of its tables are told by the server, which is not asked here"
            self.error(told, source.location, "warning")
            return []
        tables, found = self.describe(asked)
        for problem in found:
            self.error(problem.message, problem.location or source.location, problem.severity)
        self.described = {named_in_database(table): table for table in tables}
        self.found.tables += [declaration_of(table) for table in tables]
        return list(self.described)

    def _declare(self, sink_name: str, flows: list[tuple[Flow, SourceLocation]], connector: str, sink: Located) -> None:
        first, location = flows[0]
        if sink_name in self.tables:
            self.error(
                f"the sink table '{sink_name}' has the name of a declared table; route '{first.table.name}' to another"
                " sink-table",
                location,
            )
            return
        written = self.sinks[connector]
        values = {
            "connector": written.name,
            written.place_option: sink_name,
            **(written.pipeline_options or {}),
        }
        places = dict.fromkeys(values, location)
        for name, value in sink.entries.items():
            if name in ("type", "name"):
                continue
            if value.text is None:
                self.error(f"sink: option '{name}' takes one value", value.location)
                continue
            values[name], places[name] = value.text, value.location
        values, problem = written.pipeline_place(sink_name, values)
        if problem is not None:
            self.error(f"sink: {problem}", sink.location)
            return
        values |= first.options or {}
        if values.get(_GUARANTEE, "").strip().lower() == "exactly-once":
            # In SQL a user names it; the documents' pipelines have no such option, and a topic has one writer.
            values.setdefault("sink.transactional-id-prefix", f"pipeline-{sink_name}")
        columns = self._united(sink_name, flows)
        comment = sink.entries["name"].text if "name" in sink.entries else None
        self.found.tables.append(
            TableDeclaration(
                name=sink_name,
                location=location,
                columns=tuple(ColumnDeclaration(name, location, kind) for name, kind in columns.items()),
                key=KeyDeclaration(first.primary_key, location) if first.primary_key else None,
                partitioned_by=first.partitioned_by,
                options=Options(values, places),
                comment=comment,
            )
        )
        for flow, place in flows:
            self._insert(sink_name, columns, flow, place)

    def _united(self, sink_name: str, flows: list[tuple[Flow, SourceLocation]]) -> dict[str, LogicalType]:
        """Columns of a sink table: those of all tables that are routed to it."""
        first = flows[0][0]
        columns = {name: kind for name, kind, _ in first.columns}
        for flow, location in flows[1:]:
            if flow.primary_key != first.primary_key:
                told = f"({', '.join(flow.primary_key)}) and '{first.table.name}' by ({', '.join(first.primary_key)})"
                self.error(
                    f"route: '{flow.table.name}' and '{first.table.name}' go to '{sink_name}', but the first has its"
                    f" rows by {told}; tables of one topic have one key",
                    location,
                )
            own = {name: kind for name, kind, _ in flow.columns}
            for name, kind in own.items():
                known = columns.setdefault(name, replace(kind, nullable=True))
                if replace(known, nullable=True) != replace(kind, nullable=True):
                    if _is_text(known) and _is_text(kind):
                        columns[name] = LogicalType(TypeName.STRING, nullable=known.nullable or kind.nullable)
                        continue
                    self.error(
                        f"route: column '{name}' is {kind} in '{flow.table.name}' and {known} in another table of"
                        f" '{sink_name}'; give them one type by 'transform'",
                        location,
                    )
                elif kind.nullable:
                    columns[name] = replace(known, nullable=True)
            for name, kind in columns.items():
                if name not in own:
                    columns[name] = replace(kind, nullable=True)
        return columns

    def _insert(self, sink_name: str, columns: Mapping[str, LogicalType], flow: Flow, location: SourceLocation) -> None:
        problems = self.found.problems
        own = {name: tokens for name, _, tokens in flow.columns}
        query = sql_tokens("SELECT", location, problems)
        for index, (name, kind) in enumerate(columns.items()):
            if index:
                query += sql_tokens(",", location, problems)
            missing = f"CAST(NULL AS {replace(kind, nullable=True)})"
            tokens = own.get(name) or sql_tokens(missing, location, problems)
            query += (replace(tokens[0], spaced=True), *tokens[1:])
            if len(tokens) > 1 or tokens[0].value != name:
                query += sql_tokens(f"AS {quote_name(name)}", location, problems)
        query += sql_tokens(f"FROM {quote_name(flow.table.name)}", location, problems)
        if flow.where:
            query += (*sql_tokens("WHERE", location, problems), *flow.where)
        sql = f"INSERT INTO {quote_name(sink_name)} {shown(query)}"
        self.found.inserts.append(InsertDeclaration(sink_name, location, query, {}, (), sql))


def _is_text(kind: LogicalType) -> bool:
    return kind.name in TEXTS


def _routed(route: Located, name: str) -> str:
    sink_name = (route.entries["sink-table"].text or "").strip()
    symbol = route.entries.get("replace-symbol")
    if symbol is not None and symbol.text:
        return sink_name.replace(symbol.text, name.rsplit(".", 1)[-1])
    return sink_name
