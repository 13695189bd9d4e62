"""Kafka Connect configurations of the Tablestore sink connector: to a table of the topic, a target and an insert.

A configuration is a ``.properties`` file, or the JSON that is posted to Connect (``{"name": ..., "config": {...}}``, or
the configuration alone). Per topic it becomes a source table ``<connector>.<topic>`` and a Tablestore table
``<connector>.<table>`` (``<connector>.<table>.table`` where table and topic have one name). Columns are the primary key
columns and the whitelist: where the connector would take all fields of a record as they come, it is asked for.

The source keeps the last record per key where the connector replaces rows by the record's key (``record_key`` and
``put``); in every other mode each record counts, so it is a plain ``kafka`` table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from upsert_platform.components.connect_options import BOOTSTRAP_VARIABLE, CONNECTOR_CLASS, PASSED_ON, ConnectOptions
from upsert_platform.components.located import Located, sql_tokens, with_variables
from upsert_platform.errors import SourceLocation
from upsert_platform.model import ColumnKind, Options
from upsert_platform.sql.declarations import (
    ColumnDeclaration,
    Declarations,
    InsertDeclaration,
    KeyDeclaration,
    TableDeclaration,
)
from upsert_platform.sql.lexer import shown
from upsert_platform.sql.rendered import quote_name
from upsert_platform.sql.variables import Variables
from upsert_platform.types import parse_type

# Columns of the source that hold the coordinates of a record.
_TOPIC: Final = "connect_topic"
_PARTITION: Final = "connect_partition"
_OFFSET: Final = "connect_offset"
_COORDINATES: Final = ((_TOPIC, "STRING", "topic"), (_PARTITION, "INT", "partition"), (_OFFSET, "BIGINT", "offset"))
_TOPIC_PARTITION: Final = "topic_partition"
_ON_ERROR: Final = {"none": "fail", "all": "quarantine"}


def is_connect(entries: dict[str, Located]) -> bool:
    """Whether a configuration is one of this connector."""
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
    nested = [name for name, item in replaced.items() if item.text is None]
    name = (replaced["name"].text or "").strip() if "name" in replaced else ""
    options = ConnectOptions(name, location, replaced, found.problems)
    for option in nested:
        options.tell(f"option '{option}' takes one value", option)
    options.judge()
    if not name:
        options.tell("option 'name' is missing")
    if options.text("tablestore.mode", "normal").lower() != "normal":
        options.tell(
            "option 'tablestore.mode': only 'normal' is read from a connector's configuration", "tablestore.mode"
        )
    topics = [topic for topic in options.names("topics") if topic]
    if not topics:
        options.tell("option 'topics' is missing", "topics")
    bootstrap = options.text("consumer.override.bootstrap.servers") or variables.put_into(
        f"${{{BOOTSTRAP_VARIABLE}}}", location, found.problems
    )
    if any(problem.severity == "error" for problem in found.problems):
        return found
    assigned = _assigned_tables(options)
    for topic in topics:
        table = assigned.get(topic) or options.text("table.name.format", "<topic>").replace("<topic>", topic)
        _Sink(options, topic, table, bootstrap).declare(found)
    return found


def _assigned_tables(options: ConnectOptions) -> dict[str, str]:
    assigned: dict[str, str] = {}
    for pair in options.names("topics.assign.tables"):
        topic, colon, table = pair.partition(":")
        if not colon or not topic.strip() or not table.strip():
            options.tell("option 'topics.assign.tables' takes <topic>:<table>,...", "topics.assign.tables")
        assigned[topic.strip()] = table.strip()
    return assigned


@dataclass(frozen=True)
class _Sink:
    """One topic of a configuration."""

    options: ConnectOptions
    topic: str
    table: str
    bootstrap: str

    def declare(self, found: Declarations) -> None:
        options, table = self.options, self.table
        before = len(found.problems)
        mode = options.mode("primarykey.mode", "kafka")
        formats = {side: options.format(side) for side in ("key", "value")}
        put = options.mode("insert.mode", "put") == "put"
        delete = options.mode("delete.mode", "none")
        if delete != "none" and mode != "record_key":
            options.tell("option 'delete.mode' needs 'primarykey.mode' = 'record_key'", "delete.mode")
        key = options.columns(table, "primarykey") if mode != "kafka" else []
        wanted = options.columns(table, "columns.whitelist")
        self._check_key(mode, formats, key)
        held = self._held(mode, formats, key, wanted)
        both = sorted({name for name, _ in key} & {name for name, _ in wanted})
        if both:
            options.tell(f"{', '.join(both)} is both primary key and whitelist column; keep it as key")
        if any(problem.severity == "error" for problem in found.problems[before:]):
            return
        # A StringConverter's key is the column named key; all other columns are fields of the value.
        text_key = formats["key"] == "raw" and mode != "record_key"
        sides = {
            "key": [item for item in held if text_key and item[0] == "key"],
            "value": [item for item in held if not (text_key and item[0] == "key")],
        }
        if mode != "kafka":
            sides[mode.removeprefix("record_")][:0] = key
        found.tables.append(self._source(mode, formats, sides, keyed=mode == "record_key" and put))
        found.tables.append(self._target(mode, key, held, insert="put" if put else "update", delete=delete))
        found.inserts.append(self._insert(mode, key, held))

    def _check_key(self, mode: str, formats: dict[str, str], key: list[tuple[str, str]]) -> None:
        option = f"tablestore.{self.table}.primarykey.name"
        if mode == "kafka":
            return
        side = mode.removeprefix("record_")
        if not key:
            self.options.tell(f"'primarykey.mode' = '{mode}' needs '{option}' and '.type'", option)
        elif len(key) > 4:
            self.options.tell(f"'{option}' has {len(key)} columns; a Tablestore key has 4 at most", option)
        elif formats[side] == "raw" and (len(key) > 1 or key[0][1] != "STRING"):
            self.options.tell(f"'{option}': a {side} read by StringConverter is one column of type string", option)

    def _held(
        self, mode: str, formats: dict[str, str], key: list[tuple[str, str]], wanted: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """Columns besides the primary key, with the texts of a StringConverter under their fixed names."""
        texts = [(side, "STRING") for side in ("value", "key") if formats[side] == "raw" and mode != f"record_{side}"]
        if not wanted:
            if formats["value"] == "json":
                option = f"tablestore.{self.table}.columns.whitelist.name"
                self.options.tell(
                    f"'{option}' and '.type' are missing: the fields of JSON values become columns when they are named"
                )
            return texts
        return [(name, dict(texts).get(name, kind)) for name, kind in wanted]

    def _source(
        self, mode: str, formats: dict[str, str], sides: dict[str, list[tuple[str, str]]], *, keyed: bool
    ) -> TableDeclaration:
        options, place = self.options, self.options.location
        values = {
            "connector": "upsert-kafka" if keyed else "kafka",
            "topic": self.topic,
            "properties.bootstrap.servers": self.bootstrap,
            "value.format": formats["value"],
            "value.fields-include": "EXCEPT_KEY" if sides["key"] else "ALL",
            "on-error": _ON_ERROR[options.mode("errors.tolerance", "none")],
        }
        if sides["key"]:
            values["key.format"] = formats["key"]
            if not keyed:
                values["key.fields"] = ";".join(name for name, _ in sides["key"])
        reset = options.text("consumer.override.auto.offset.reset", "earliest").lower()
        if not keyed or reset == "latest":
            values["scan.startup.mode"] = f"{reset}-offset"
        for name in options.entries:
            rest = name.removeprefix("consumer.override.")
            if rest not in (name, "bootstrap.servers", "auto.offset.reset"):
                values[f"properties.{rest}"] = options.text(name)
        columns = [_column(name, kind, place) for side in ("key", "value") for name, kind in sides[side]]
        if mode == "kafka":
            columns += [
                ColumnDeclaration(
                    name, place, parse_type(kind), kind=ColumnKind.METADATA, metadata_key=key, virtual=True
                )
                for name, kind, key in _COORDINATES
            ]
        key = KeyDeclaration(tuple(name for name, _ in sides["key"]), place) if keyed else None
        places = dict.fromkeys(values, place)
        return TableDeclaration(
            self._name(self.topic), place, columns=tuple(columns), key=key, options=Options(values, places)
        )

    def _target(
        self, mode: str, key: list[tuple[str, str]], held: list[tuple[str, str]], *, insert: str, delete: str
    ) -> TableDeclaration:
        options, place = self.options, self.options.location
        given = {name: options.text(name) for name in PASSED_ON if name in options.entries}
        has_keys = all(given.get(f"tablestore.access.key.{part}") for part in ("id", "secret"))
        values = {
            "connector": "tablestore",
            "table.name": self.table,
            "tablestore.auth.mode": options.mode("tablestore.auth.mode", "aksk" if has_keys else "sts"),
            "insert.mode": insert,
            "delete.mode": delete,
            "on-error": _ON_ERROR[options.mode("runtime.error.tolerance", "none")],
            **given,
        }
        if "tasks.max" in options.entries:
            values["sink.parallelism"] = options.text("tasks.max")
        names = {"sink.parallelism": "tasks.max", "on-error": "runtime.error.tolerance"}
        places = {name: options.place(names.get(name, name)) for name in values}
        if mode == "kafka":
            key = [(_TOPIC_PARTITION, "STRING"), ("offset", "BIGINT")]
        return TableDeclaration(
            self._target_name(),
            place,
            columns=tuple(_column(name, kind, place) for name, kind in [*key, *held]),
            key=KeyDeclaration(tuple(name for name, _ in key), place),
            options=Options(values, places),
        )

    def _insert(self, mode: str, key: list[tuple[str, str]], held: list[tuple[str, str]]) -> InsertDeclaration:
        place = self.options.location
        selected = [quote_name(name) for name, _ in [*key, *held]]
        if mode == "kafka":
            partition = f"{quote_name(_TOPIC)} || '_' || CAST({quote_name(_PARTITION)} AS STRING)"
            selected = [partition, quote_name(_OFFSET), *selected]
        source, target = self._name(self.topic), self._target_name()
        query = sql_tokens(f"SELECT {', '.join(selected)} FROM {quote_name(source)}", place, self.options.problems)
        sql = f"INSERT INTO {quote_name(target)} {shown(query)}"
        return InsertDeclaration(target, place, query, {}, (), sql)

    def _name(self, part: str) -> str:
        return f"{self.options.name}.{part}"

    def _target_name(self) -> str:
        return self._name(f"{self.table}.table" if self.table == self.topic else self.table)


def _column(name: str, kind: str, place: SourceLocation) -> ColumnDeclaration:
    return ColumnDeclaration(name, place, parse_type(kind))


def _coordinate(name: str, kind: str, key: str, place: SourceLocation) -> ColumnDeclaration:
    return ColumnDeclaration(name, place, parse_type(kind), kind=ColumnKind.METADATA, metadata_key=key, virtual=True)
