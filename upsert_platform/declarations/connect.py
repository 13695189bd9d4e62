"""Kafka Connect configurations of the Tablestore sink connector: to tables of records, Tablestore tables and inserts.

A configuration is a ``.properties`` file, or the JSON that is posted to Connect (``{"name": ..., "config": {...}}``, or
the configuration alone). Per Tablestore table it becomes a source table ``<connector>.<table>.records``, which holds
every record of the topics of the table as it is, a table ``<connector>.<table>`` of connector `tablestore-connect`,
which makes rows of records by the connector's rules, and the insert between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import ColumnKind, Options
from upsert_platform.core.options import nearest, read_settings
from upsert_platform.core.types import parse_type, quote_name
from upsert_platform.declarations.connect_options import (
    BOOTSTRAP_VARIABLE,
    CONCURRENCY,
    CONNECTOR_CLASS,
    CONSUMER,
    DEFAULT_CONCURRENCY,
    PASSED_ON,
    POLICY,
    PRODUCER,
    SOURCE_OPTIONS,
    ConnectOptions,
)
from upsert_platform.declarations.located import Located, sql_tokens, with_variables
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    Declarations,
    InsertDeclaration,
    TableDeclaration,
)
from upsert_platform.sql.lexer import shown
from upsert_platform.sql.variables import Variables
from upsert_platform.tablestore.connect.failure_options import FailureSettings
from upsert_platform.tablestore.connect.table import CLIENT_PREFIX, COLUMNS, CONNECTOR, FAILURE_OPTIONS, HEADERS
from upsert_platform.tablestore.connect.transforms.chain import Chain
from upsert_platform.tablestore.connect.transforms.options import PREFIXES, read_transforms

_LOGIN: Final = ("security.", "sasl.", "ssl.")
"""Begin client properties that serve for the topics of failed records too."""
_REGEX: Final = "topics.regex"
_TIMESERIES: Final = "tablestore.timeseries."
_OFFSETS: Final = {"earliest": "earliest-offset", "latest": "latest-offset"}
_PHYSICAL: Final = ("key", "value")


def is_connect(entries: dict[str, Located]) -> bool:
    """Return whether a configuration is one of this connector."""
    found = _configuration(entries).get("connector.class")
    return found is not None and (found.text or "").strip().endswith(CONNECTOR_CLASS)


def _configuration(entries: dict[str, Located]) -> dict[str, Located]:
    posted = entries.get("config")
    if posted is None or not posted.entries:
        return entries
    return {**({"name": entries["name"]} if "name" in entries else {}), **posted.entries}


def read_connect(entries: dict[str, Located], location: SourceLocation, variables: Variables) -> Declarations:
    """Reads a configuration.

    Args:
        entries: of the properties file, or of the JSON object.
        location: of the file.
    """
    found = Declarations()
    replaced = {name: with_variables(item, variables, found.problems) for name, item in _configuration(entries).items()}
    name = (replaced["name"].text or "").strip() if "name" in replaced else ""
    options = ConnectOptions(name, location, replaced, found.problems)
    for option in [name for name, item in replaced.items() if item.text is None]:
        options.tell(f"option '{option}' takes one value", option)
    options.judge()
    if not name:
        options.tell("option 'name' is missing")
    found.connectors.setdefault(name, []).append(options.place("name"))
    if not any(options.names("topics")) and not options.text(_REGEX):
        options.tell("option 'topics' is missing", "topics")
    bootstrap = options.text(f"{CONSUMER}bootstrap.servers") or variables.put_into(
        f"${{{BOOTSTRAP_VARIABLE}}}", location, found.problems
    )
    transforms, _ = read_transforms(
        Options({name: options.text(name) for name in options.entries}), subject="", location=location
    )
    tables = _tables(options, transforms)
    _judge_names(options, list(tables))
    if any(problem.severity == "error" for problem in found.problems):
        return found
    for table, topics in tables.items():
        _Sink(options, tuple(topics), table, bootstrap, transforms).declare(found)
    return found


def _tables(options: ConnectOptions, transforms: Chain) -> dict[str, list[str]]:
    """Table to its topics; of a pattern of topics its only table, without any."""
    if options.text(_REGEX):
        return {_table_of_pattern(options): []}
    topics = [topic for topic in dict.fromkeys(options.names("topics")) if topic]
    assigned: dict[str, str] = {}
    for pair in options.names("topics.assign.tables"):
        topic, colon, table = pair.partition(":")
        if not colon or not topic.strip() or not table.strip():
            options.tell("option 'topics.assign.tables' takes <topic>:<table>,...", "topics.assign.tables")
        elif topic.strip() not in map(transforms.route, topics):
            message = f"'topics.assign.tables' names topic '{topic.strip()}', which is not in 'topics'"
            options.tell(message, "topics.assign.tables", "warning")
        assigned[topic.strip()] = table.strip()
    tables: dict[str, list[str]] = {}
    for topic in topics:
        routed = transforms.route(topic)
        by_format = options.text("table.name.format", "<topic>").replace("<topic>", routed)
        tables.setdefault(assigned.get(routed, by_format), []).append(topic)
    return tables


def _table_of_pattern(options: ConnectOptions) -> str:
    for other in ("topics", "topics.assign.tables"):
        if options.text(other):
            options.tell(f"option '{_REGEX}' takes the place of '{other}': give one of them", _REGEX)
    table = options.text("table.name.format", "<topic>")
    if "<topic>" in table:
        options.tell(
            f"option '{_REGEX}': name the one table of all these topics in 'table.name.format'; tables are declared"
            " before topics are looked for",
            _REGEX,
        )
    return table


def _judge_names(options: ConnectOptions, tables: list[str]) -> None:
    """Report options ``tablestore.*`` that belong to no table."""
    timeseries = options.text("tablestore.mode", "normal").lower() == "timeseries"
    for name in options.entries:
        if not name.startswith("tablestore.") or name in PASSED_ON or name == "tablestore.mode":
            continue
        if name.startswith(_TIMESERIES) and not timeseries:
            options.tell(f"option '{name}' belongs to 'tablestore.mode' = 'timeseries'", name)
        elif not any(_concerns(name, table) for table in tables):
            known = [*PASSED_ON, *(f"tablestore.{table}.primarykey.name" for table in tables)]
            shown_tables = ", ".join(tables)
            options.tell(f"unknown option '{name}'{nearest(name, known)} (tables are: {shown_tables})", name)


def _concerns(name: str, table: str) -> bool:
    """Return whether an option is one of a table."""
    rest = name.removeprefix(_TIMESERIES)
    return name.startswith(f"tablestore.{table}.") or (
        rest != name and (rest.startswith(f"{table}.") or "." not in rest)
    )


@dataclass(frozen=True)
class _Sink:
    """One table of a configuration."""

    options: ConnectOptions
    topics: tuple[str, ...]
    table: str
    bootstrap: str
    transforms: Chain

    def declare(self, found: Declarations) -> None:
        failures, _ = read_settings(
            FailureSettings,
            Options(self._failure_options()),
            subject="",
            location=self.options.location,
        )
        reported = failures is not None and failures.needs_headers
        names = {**COLUMNS, **(dict([HEADERS]) if reported or self.transforms.needs_headers else {})}
        source, target = f"{self.options.name}.{self.table}.records", f"{self.options.name}.{self.table}"
        found.tables.append(self._source(source, names))
        found.tables.append(self._target(target, names, failures))
        found.inserts.append(self._insert(source, target, names))

    def _source(self, name: str, columns: Mapping[str, str]) -> TableDeclaration:
        options, place = self.options, self.options.location
        reset = options.text(f"{CONSUMER}auto.offset.reset", "earliest").lower()
        if reset not in _OFFSETS:
            options.tell(
                f"option '{CONSUMER}auto.offset.reset' takes earliest or latest, not '{reset}'",
                f"{CONSUMER}auto.offset.reset",
            )
        values = {
            "connector": "kafka",
            **({"topic": ";".join(self.topics)} if self.topics else {"topic-pattern": options.text(_REGEX)}),
            "properties.bootstrap.servers": self.bootstrap,
            "properties.group.id": f"connect-{options.name}",
            "scan.startup.mode": _OFFSETS.get(reset, "earliest-offset"),
            "key.format": "raw",
            "key.fields": "key",
            "value.format": "raw",
            "value.fields-include": "EXCEPT_KEY",
        }
        places = dict.fromkeys(values, place)
        for option in options.entries:
            client = option.removeprefix(CONSUMER)
            if client not in (option, "bootstrap.servers", "auto.offset.reset"):
                values[f"{CLIENT_PREFIX}{client}"] = options.text(option)
                places[f"{CLIENT_PREFIX}{client}"] = options.place(option)
            elif option in SOURCE_OPTIONS:
                values[option], places[option] = options.text(option), options.place(option)
        declared = [
            ColumnDeclaration(column, place, parse_type(kind))
            if column in _PHYSICAL
            else ColumnDeclaration(
                column,
                place,
                parse_type(kind),
                kind=ColumnKind.METADATA,
                metadata_key="header-list" if column == HEADERS[0] else column,
                virtual=True,
            )
            for column, kind in columns.items()
        ]
        return TableDeclaration(name, place, columns=tuple(declared), options=Options(values, places))

    def _target(self, name: str, columns: Mapping[str, str], failures: FailureSettings | None) -> TableDeclaration:
        options, place = self.options, self.options.location
        values = {"connector": CONNECTOR, "name": options.name}
        places = {"connector": place, "name": options.place("name")}
        if self.topics:
            values["topics"], places["topics"] = ",".join(self.topics), options.place("topics")
        parallelism = next((name for name in ("tasks.max", CONCURRENCY) if name in options.entries), CONCURRENCY)
        values["sink.parallelism"] = options.text(parallelism, DEFAULT_CONCURRENCY)
        places["sink.parallelism"] = options.place(parallelism)
        for option, value in self._failure_options().items():
            values[option], places[option] = value, options.place(option if option in options.entries else POLICY)
        for option in options.entries:
            passed = option in PASSED_ON or option == "tablestore.mode" or _concerns(option, self.table)
            passed = passed or option.startswith(PREFIXES)
            if passed and option != "topics":
                values[option], places[option] = options.text(option), options.place(option)
        if failures is not None and failures.needs_headers:
            for option, value in self._client().items():
                values[f"{CLIENT_PREFIX}{option}"] = value
        declared = tuple(ColumnDeclaration(column, place, parse_type(kind)) for column, kind in columns.items())
        return TableDeclaration(name, place, columns=declared, options=Options(values, places))

    def _failure_options(self) -> dict[str, str]:
        """Options of failures as they are given; tolerances follow from the policy where they are not."""
        options, tolerance = self.options, self.options.tolerance()
        followed = (
            {} if tolerance is None else dict.fromkeys(("errors.tolerance", "runtime.error.tolerance"), tolerance)
        )
        return {**followed, **{name: options.text(name) for name in FAILURE_OPTIONS if name in options.entries}}

    def _client(self) -> dict[str, str]:
        """Properties of the client that sends failed records: the producer's, or else the login of the consumer."""
        options = self.options
        consumer = {
            name.removeprefix(CONSUMER): options.text(name)
            for name in options.entries
            if name.startswith(tuple(f"{CONSUMER}{prefix}" for prefix in _LOGIN))
        }
        producer = {
            name.removeprefix(PRODUCER): options.text(name) for name in options.entries if name.startswith(PRODUCER)
        }
        return {"bootstrap.servers": self.bootstrap, **(producer or consumer)}

    def _insert(self, source: str, target: str, columns: Mapping[str, str]) -> InsertDeclaration:
        place = self.options.location
        selected = ", ".join(quote_name(column) for column in columns)
        query = sql_tokens(f"SELECT {selected} FROM {quote_name(source)}", place, self.options.problems)
        sql = f"INSERT INTO {quote_name(target)} {shown(query)}"
        return InsertDeclaration(target, place, query, {}, (), sql)
