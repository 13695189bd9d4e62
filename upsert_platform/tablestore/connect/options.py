"""Configuration of the connector, as properties: which table a topic goes to and how records become rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, field_validator, model_validator

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import Boolean, CommaList, Settings, nearest, option, read_settings
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.record import Envelope, MessageFormat, SideFormat
from upsert_platform.tablestore.connect.transforms.chain import NO_TRANSFORMS, Chain
from upsert_platform.tablestore.options import DeleteMode, InsertMode
from upsert_platform.writing.options import lowered


class KeyMode(StrEnum):
    """The origin of the primary key."""

    KAFKA = "kafka"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"
    SEARCH = "search"

    @property
    def is_place(self) -> bool:
        """Return whether a record's place in its topic is the key, so that every record is a row."""
        return self in (KeyMode.KAFKA, KeyMode.SEARCH)


_COORDINATES: Mapping[KeyMode, tuple[tuple[str, str], ...]] = {
    KeyMode.KAFKA: (("topic_partition", "string"), ("offset", "integer")),
    KeyMode.SEARCH: (("md5", "string"), ("topic", "string"), ("partition", "integer"), ("offset", "integer")),
}
_KEY_TYPES = ("string", "integer", "binary", "auto_increment")
_COLUMN_TYPES = ("string", "integer", "double", "boolean", "binary")
TABLE_OPTIONS: Final = (
    "primarykey.name", "primarykey.type", "columns.whitelist.name", "columns.whitelist.type", "search.timestamp.type",
)  # fmt: skip
"""Options of one wide-column table, after ``tablestore.<table>.``."""


def _envelope(schemas_enable: bool | None) -> Envelope:
    if schemas_enable is None:
        return Envelope.DETECTED
    return Envelope.REQUIRED if schemas_enable else Envelope.NEVER


def _message_format(value: object) -> object:
    """``string`` or ``json``, or the class name of Kafka Connect's converter."""
    if not isinstance(value, str):
        return value
    name = value.strip().rsplit(".", 1)[-1].lower()
    return name.removesuffix("converter")


class ConnectSettings(Settings):
    """Options that decide what a record becomes (specification section 1.2, and 1.1 for the two wizard fields)."""

    topics: CommaList = option("topics", (), origin="kafka-connect, tablestore", description="Topics that are read.")
    topics_regex: str | None = option(
        "topics.regex",
        None,
        origin="kafka-connect",
        description="Regular expression that whole names of topics match, instead of `topics`; `table.name.format`"
        " then names their only table.",
    )
    table_name_format: str = option(
        "table.name.format",
        "<topic>",
        origin="tablestore",
        description="Name of the table of a topic; `<topic>` stands for the topic.",
    )
    topics_assign_tables: CommaList = option(
        "topics.assign.tables",
        (),
        origin="tablestore",
        description="Pairs `<topic>:<table>` that win over the format.",
    )
    key_mode: Annotated[KeyMode, BeforeValidator(lowered)] = option(
        "primarykey.mode", KeyMode.KAFKA, origin="tablestore", description="Where the primary key comes from."
    )
    insert_mode: Annotated[InsertMode, BeforeValidator(lowered)] = option(
        "insert.mode", InsertMode.PUT, origin="tablestore", description="`put` replaces a row, `update` merges."
    )
    delete_mode: Annotated[DeleteMode, BeforeValidator(lowered)] = option(
        "delete.mode", DeleteMode.NONE, origin="tablestore", description="What an empty value deletes."
    )
    key_format: Annotated[MessageFormat, BeforeValidator(_message_format)] = option(
        "key.converter",
        MessageFormat.JSON,
        origin="kafka-connect, tablestore",
        description="`string` or `json`, or the class.",
    )
    value_format: Annotated[MessageFormat, BeforeValidator(_message_format)] = option(
        "value.converter",
        MessageFormat.JSON,
        origin="kafka-connect, tablestore",
        description="`string` or `json`, or the class.",
    )
    key_schemas: Boolean | None = option(
        "key.converter.schemas.enable",
        None,
        origin="kafka-connect",
        description="Whether JSON keys are envelopes of schema and payload; if not given, either form is read.",
    )
    value_schemas: Boolean | None = option(
        "value.converter.schemas.enable",
        None,
        origin="kafka-connect",
        description="Whether JSON values are envelopes of schema and payload; if not given, either form is read.",
    )
    conversion: Annotated[Literal["string", "auto"], BeforeValidator(lowered)] = option(
        "json.field.conversion",
        "string",
        origin="alibaba",
        description="Fields of JSON without whitelist: all as text, or by their own type with numbers as doubles.",
    )
    repeated_rows: Boolean = option(
        "auto.increment.repeated-rows",
        False,
        origin="platform",
        description="Accepts that a repeated write adds rows again where Tablestore generates a key column.",
    )

    @field_validator("topics_assign_tables")
    @classmethod
    def _pairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pair in value:
            topic, colon, table = pair.partition(":")
            if not colon or not topic.strip() or not table.strip():
                raise ValueError(f"takes <topic>:<table>,...; '{pair}' is not such a pair")
        return value

    @field_validator("topics_regex")
    @classmethod
    def _is_an_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return value or None

    @model_validator(mode="after")
    def _topics_are_named_once(self) -> Self:
        if bool(self.topics) == bool(self.topics_regex):
            raise ValueError("option 'topics' or option 'topics.regex' is needed, and not both")
        return self

    @model_validator(mode="after")
    def _deletes_need_the_record_key(self) -> Self:
        if self.delete_mode is not DeleteMode.NONE and self.key_mode is not KeyMode.RECORD_KEY:
            raise ValueError(f"'delete.mode' = '{self.delete_mode}' needs 'primarykey.mode' = 'record_key'")
        return self

    @property
    def key_side(self) -> SideFormat:
        """Return the format of keys."""
        return SideFormat(self.key_format, _envelope(self.key_schemas))

    @property
    def value_side(self) -> SideFormat:
        """Return the format of values."""
        return SideFormat(self.value_format, _envelope(self.value_schemas))

    @property
    def named(self) -> tuple[str, ...]:
        """The topics, or the expression for them."""
        return self.topics or (self.topics_regex or "",)

    def table_of(self, topic: str) -> str:
        """Name of the table of a topic."""
        for pair in self.topics_assign_tables:
            assigned, _, table = pair.partition(":")
            if assigned.strip() == topic:
                return table.strip()
        return self.table_name_format.replace("<topic>", topic)


class EveryTopic(Mapping[str, "ConnectTable"]):
    """Topic to table, where every topic goes to one: they are not known before they are read.

    Args:
        pattern: stands for the topics.
    """

    def __init__(self, pattern: str, table: ConnectTable) -> None:
        self._pattern = pattern
        self._table = table

    def __getitem__(self, topic: str) -> ConnectTable:
        return self._table

    def __iter__(self) -> Iterator[str]:
        return iter((self._pattern,))

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class ConnectTable:
    """The mapping of a topic's records to rows of a table.

    Attributes:
        primary_key: column and ``string``, ``integer``, ``binary`` or ``auto_increment``.
        whitelist: column and type of the only columns that are kept; empty for all.
        identify_types: fields of schemaless JSON keep their type (numbers become doubles) instead of becoming text.
        search_timestamp: ``kafka`` or ``local``; of the key mode ``search``.
        transforms: what records go through before.
    """

    topic: str
    name: str
    key_mode: KeyMode
    primary_key: tuple[tuple[str, str], ...]
    insert_mode: InsertMode
    delete_mode: DeleteMode
    key_side: SideFormat
    value_side: SideFormat
    whitelist: tuple[tuple[str, str], ...] = ()
    identify_types: bool = False
    search_timestamp: str = "kafka"
    transforms: Chain = NO_TRANSFORMS

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the primary key columns."""
        return tuple(name for name, _ in self.primary_key)


def read_connect_tables(
    options: Options, *, subject: str, location: SourceLocation, transforms: Chain = NO_TRANSFORMS
) -> tuple[Mapping[str, ConnectTable], list[Problem]]:
    """Reads the options that decide what records become.

    Args:
        options: these alone; others of a configuration are read elsewhere.
        transforms: of the connector.

    Returns:
        Topic to table, empty when a problem is an error, and every problem.
    """
    settings, problems = read_settings(
        ConnectSettings, options, subject=subject, location=location, ignore=lambda name: name.startswith("tablestore.")
    )
    if settings is None:
        return {}, problems
    reader = _Reader(options, settings, transforms, subject, location, problems)
    tables: Mapping[str, ConnectTable] = {topic: reader.table(topic) for topic in settings.named}
    reader.check_names({table.name for table in tables.values()})
    if any(problem.severity == "error" for problem in problems):
        return {}, problems
    return (tables if settings.topics else EveryTopic(*next(iter(tables.items())))), problems


@dataclass(frozen=True)
class _Reader:
    options: Options
    settings: ConnectSettings
    transforms: Chain
    subject: str
    location: SourceLocation
    problems: list[Problem]

    def tell(self, message: str, name: str = "", severity: str = "error") -> None:
        place = self.options.location(name) or self.location
        self.problems.append(Problem(f"{self.subject}: {message}", place, severity))

    def check_names(self, tables: set[str]) -> None:
        known = {f"tablestore.{table}.{suffix}" for table in tables for suffix in TABLE_OPTIONS}
        for name in self.options:
            if name.startswith("tablestore.") and name not in known:
                self.tell(f"unknown option '{name}'{nearest(name, known)}", name)

    def table(self, topic: str) -> ConnectTable:
        settings = self.settings
        name = settings.table_of(self.transforms.route(topic))
        if not limits.is_valid_name(name):
            self.tell(f"topic '{topic}': Tablestore takes no table name '{name}'; use 'topics.assign.tables'")
        primary_key = _COORDINATES.get(settings.key_mode) or self._primary_key(name)
        if settings.key_mode.is_place:
            for given in (f"tablestore.{name}.primarykey.name", f"tablestore.{name}.primarykey.type"):
                if given in self.options:
                    self.tell(
                        f"option '{given}' has no effect with 'primarykey.mode' = '{settings.key_mode}'",
                        given,
                        "warning",
                    )
        whitelist = self._columns(f"tablestore.{name}.columns.whitelist", _COLUMN_TYPES)
        made = ConnectTable(
            topic=topic,
            name=name,
            key_mode=settings.key_mode,
            primary_key=primary_key,
            insert_mode=settings.insert_mode,
            delete_mode=settings.delete_mode,
            key_side=settings.key_side,
            value_side=settings.value_side,
            whitelist=whitelist,
            identify_types=settings.conversion == "auto",
            search_timestamp=self._search_timestamp(name),
            transforms=self.transforms,
        )
        for message in _collisions(made):
            self.tell(f"table '{name}': {message}")
        return made

    def _primary_key(self, table: str) -> tuple[tuple[str, str], ...]:
        option_name = f"tablestore.{table}.primarykey"
        found = self._columns(option_name, _KEY_TYPES)
        if not found and f"{option_name}.name" not in self.options:
            self.tell(f"'primarykey.mode' = '{self.settings.key_mode}' needs '{option_name}.name' and '.type'")
        if len(found) > limits.MAX_PRIMARY_KEYS:
            self.tell(f"'{option_name}.name' has {len(found)} columns; Tablestore takes {limits.MAX_PRIMARY_KEYS}")
        generated = [name for name, kind in found if kind == "auto_increment"]
        if generated and (len(generated) > 1 or found[0][0] in generated):
            self.tell(f"'{option_name}.type': one column may be auto_increment, and not the first")
        elif generated and not self.settings.repeated_rows:
            self.tell(
                f"'{option_name}.type': a repeated write adds a row again where Tablestore generates '{generated[0]}';"
                " set 'auto.increment.repeated-rows' = 'true' to accept it, or take the column from the record"
            )
        side = self.settings.key_format if self.settings.key_mode is KeyMode.RECORD_KEY else self.settings.value_format
        if side is MessageFormat.STRING and found:
            if len(found) != 1:
                self.tell(f"'{option_name}.name': a key read as a string is one column, not {len(found)}")
            elif found[0][1] not in ("string", "integer"):
                self.tell(f"'{option_name}.type': a key read as a string is string or integer, not {found[0][1]}")
        return found

    def _columns(self, prefix: str, kinds: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        names = _items(self.options.get(f"{prefix}.name", ""))
        types = [item.lower() for item in _items(self.options.get(f"{prefix}.type", ""))]
        place = f"{prefix}.name"
        if len(names) != len(types):
            self.tell(f"'{prefix}.name' has {len(names)} items and '{prefix}.type' {len(types)}", place)
            return ()
        for name in names:
            if not limits.is_valid_name(name):
                self.tell(
                    f"'{place}': '{name}' is not a column name; a letter or '_', then letters, digits, '_'", place
                )
        if len(set(names)) < len(names):
            self.tell(f"'{place}' names a column twice", place)
        for kind in types:
            if kind not in kinds:
                self.tell(f"'{prefix}.type' takes {', '.join(kinds)}, not '{kind}'", f"{prefix}.type")
        return tuple(zip(names, types, strict=True))

    def _search_timestamp(self, table: str) -> str:
        name = f"tablestore.{table}.search.timestamp.type"
        value = self.options.get(name, "kafka").strip().lower()
        if value not in ("kafka", "local"):
            self.tell(f"option '{name}' takes kafka or local", name)
        elif name in self.options and self.settings.key_mode is not KeyMode.SEARCH:
            self.tell(f"option '{name}' belongs to 'primarykey.mode' = 'search'", name)
        return value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _collisions(table: ConnectTable) -> Iterator[str]:
    """Columns that would need two places (specification section 2.6, what configuration should reject)."""
    if len(table.whitelist) > limits.MAX_COLUMNS_PER_ROW:
        yield f"{len(table.whitelist)} whitelist columns; Tablestore writes {limits.MAX_COLUMNS_PER_ROW} per row"
    for name in sorted(set(table.key_names) & {name for name, _ in table.whitelist}):
        yield f"'{name}' is both primary key and whitelist column; keep it as key"
    sides = (
        ("value", table.value_side.format, table.key_mode is KeyMode.RECORD_VALUE),
        ("key", table.key_side.format, table.key_mode is KeyMode.RECORD_KEY),
    )
    for side, side_format, is_primary_key in sides:
        if side in table.key_names and side_format is MessageFormat.STRING and not is_primary_key:
            yield f"primary key column '{side}' has the name of the column of a {side} read as a string; rename it"
