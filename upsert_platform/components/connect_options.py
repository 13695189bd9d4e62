"""Options of the Tablestore sink connector for Kafka Connect, and which of them have a place here.

Names and defaults are the connector's. The framework's own options are those that concern a sink: converters, tolerance
and overrides of the consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.components.located import Located
from upsert_platform.errors import Problem, SourceLocation
from upsert_platform.options import nearest

CONNECTOR_CLASS: Final = "TableStoreSinkConnector"
BOOTSTRAP_VARIABLE: Final = "UPSERT_KAFKA_BOOTSTRAP_SERVERS"

PASSED_ON: Final = (
    "tablestore.endpoint", "tablestore.instance.name", "tablestore.access.key.id", "tablestore.access.key.secret",
    "auto.create", "max.concurrency", "region",
)  # fmt: skip
"""Options that a Tablestore table here has under the same name and with the same meaning."""
READ: Final = (
    "name", "connector.class", "tasks.max", "topics", "topics.assign.tables", "table.name.format",
    "key.converter", "key.converter.schemas.enable", "value.converter", "value.converter.schemas.enable",
    "errors.tolerance", "runtime.error.tolerance", "tablestore.mode", "tablestore.auth.mode",
    "primarykey.mode", "insert.mode", "delete.mode",
)  # fmt: skip
"""Options that decide what becomes of a record, or where it is read."""
WITHOUT_EFFECT: Final = {
    "buffer.size": "a batch is written in requests of 200 rows",
    "max.thread.count": "Spark's cores write",
    "bucket.count": "Spark's partitions write",
    "flush.Interval": "a batch is flushed at its end",
    "insert.order.enable": "a batch holds one row per key, so no order can be lost",
    "client.time.out.ms": "clients are opened per batch",
    "header.converter": "headers are not read",
    "runtime.error.mode": "refused rows are kept beside the lake's changelog, with the reason",
    "runtime.error.bootstrap.servers": "refused rows are kept beside the lake's changelog, with the reason",
    "runtime.error.topic.name": "refused rows are kept beside the lake's changelog, with the reason",
    "runtime.error.table.name": "refused rows are kept beside the lake's changelog, with the reason",
    "config.action.reload": "a project is read when the code location loads",
}
"""Options that are accepted with a warning, with what takes their place."""
WITHOUT_EFFECT_PREFIXES: Final = {
    "errors.deadletterqueue.": "undecodable records are kept in quarantine, with the reason",
    "errors.log.": "undecodable records are kept in quarantine, with the reason",
    "errors.retry.": "Dagster retries a failed run",
}
"""As WITHOUT_EFFECT, for every option that begins so."""
REFUSED: Final = {
    "topics.regex": "name the topics in 'topics'",
    "transforms": "write the transformation as SQL: INSERT INTO ... SELECT",
    "predicates": "write the condition as SQL: INSERT INTO ... SELECT ... WHERE",
    "event.parse.class": "Java classes are not loaded; declare the columns in SQL",
    "account.id": "no role is assumed; give an access key, or a temporary one in SQL with 'tablestore.sts.token'",
    "role.name": "no role is assumed; give an access key, or a temporary one in SQL with 'tablestore.sts.token'",
    "sts.endpoint": "no role is assumed; give an access key, or a temporary one in SQL with 'tablestore.sts.token'",
}
"""Options that are errors, with what to do instead."""
_TABLE_SUFFIXES: Final = (
    ".primarykey.name", ".primarykey.type", ".columns.whitelist.name", ".columns.whitelist.type",
)  # fmt: skip
MODES: Final[dict[str, tuple[str, ...]]] = {
    "primarykey.mode": ("kafka", "record_key", "record_value"),
    "insert.mode": ("put", "update"),
    "delete.mode": ("none", "row", "column", "row_and_column"),
    "tablestore.auth.mode": ("aksk", "sts"),
    "errors.tolerance": ("none", "all"),
    "runtime.error.tolerance": ("none", "all"),
}
_KEY_TYPES: Final = {"string": "STRING", "integer": "BIGINT", "binary": "BYTES"}
_COLUMN_TYPES: Final = {**_KEY_TYPES, "double": "DOUBLE", "boolean": "BOOLEAN"}


@dataclass(frozen=True, repr=False)
class ConnectOptions:
    """A configuration, with everything said that is wrong with it.

    Attributes:
        entries: option name to value, variables replaced.
        problems: grows while options are read.
    """

    name: str
    location: SourceLocation
    entries: Mapping[str, Located]
    problems: list[Problem]

    def __repr__(self) -> str:
        return f"ConnectOptions({self.name!r})"

    def tell(self, message: str, option: str = "", severity: str = "error") -> None:
        """Adds a problem at an option's place."""
        found = self.entries.get(option)
        place = found.location if found is not None else self.location
        self.problems.append(Problem(f"connector '{self.name}': {message}", place, severity))

    def text(self, option: str, default: str = "") -> str:
        """The value of an option, trimmed."""
        found = self.entries.get(option)
        return (found.text or "").strip() if found is not None else default

    def place(self, option: str) -> SourceLocation:
        """Where an option stands; the configuration's own place if it is not given."""
        found = self.entries.get(option)
        return found.location if found is not None else self.location

    def mode(self, option: str, default: str) -> str:
        """The value of an option with fixed values, in any case."""
        value, allowed = self.text(option, default).lower(), MODES[option]
        if value not in allowed:
            self.tell(f"option '{option}' takes one of {', '.join(allowed)}", option)
            return default
        return value

    def names(self, option: str) -> list[str]:
        """The items of a list."""
        return [item.strip() for item in self.text(option).split(",")] if self.text(option) else []

    def format(self, side: str) -> str:
        """``json`` or ``raw``, after the converter of a side."""
        option = f"{side}.converter"
        kind = self.text(option).rsplit(".", 1)[-1]
        if kind not in ("", "JsonConverter", "StringConverter"):
            self.tell(f"option '{option}' takes JsonConverter or StringConverter", option)
        enveloped = self.text(f"{option}.schemas.enable", "false").lower() == "true"
        if enveloped and kind != "StringConverter":
            message = "JSON with an envelope of schema and payload is not read; set it to false, and send plain JSON"
            self.tell(f"option '{option}.schemas.enable': {message}", f"{option}.schemas.enable")
        return "raw" if kind == "StringConverter" else "json"

    def columns(self, table: str, kind: str) -> list[tuple[str, str]]:
        """Names and SQL types of ``primarykey`` or ``columns.whitelist`` of a table."""
        option = f"tablestore.{table}.{kind}"
        names, types = self.names(f"{option}.name"), [item.lower() for item in self.names(f"{option}.type")]
        known = _KEY_TYPES if kind == "primarykey" else _COLUMN_TYPES
        if len(names) != len(types):
            self.tell(f"'{option}.name' has {len(names)} items, '{option}.type' {len(types)}", f"{option}.name")
            return []
        if "" in names or len(set(names)) < len(names):
            self.tell(f"'{option}.name' has an empty item, or one twice", f"{option}.name")
            return []
        for item in types:
            if item not in known:
                self.tell(f"'{option}.type' takes {', '.join(known)}, not '{item}'", f"{option}.type")
                return []
        return [(name, known[item]) for name, item in zip(names, types, strict=True)]

    def judge(self) -> None:
        """Tells of options that are unknown, have no effect, or are refused."""
        for name in self.entries:
            if name in READ or name in PASSED_ON or name.startswith("consumer.override."):
                continue
            reason = WITHOUT_EFFECT.get(name) or next(
                (text for prefix, text in WITHOUT_EFFECT_PREFIXES.items() if name.startswith(prefix)), None
            )
            refused = next((text for key, text in REFUSED.items() if name == key or name.startswith(f"{key}.")), None)
            if reason is not None:
                self.tell(f"option '{name}' has no effect: {reason}", name, "warning")
            elif refused is not None:
                self.tell(f"option '{name}' is not supported: {refused}", name)
            elif name.startswith("tablestore.timeseries."):
                if self.text("tablestore.mode", "normal").lower() != "timeseries":
                    self.tell(f"option '{name}' belongs to 'tablestore.mode' = 'timeseries'", name)
            elif not (name.startswith("tablestore.") and name.endswith(_TABLE_SUFFIXES)):
                known = (*READ, *PASSED_ON, *WITHOUT_EFFECT, *REFUSED)
                self.tell(f"unknown option '{name}'{nearest(name, known)}", name)
