"""Options of the Tablestore sink connector for Kafka Connect, and which of them have a place here.

Names and defaults are the connector's; those that decide what becomes of records, and how tables are reached, are read
by `upsert_platform.tablestore.connect`. The framework's own options are those that concern a sink: converters,
tolerance, dead letters and overrides of clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.options import nearest
from upsert_platform.declarations.located import Located
from upsert_platform.tablestore.connect.table import CONNECTION_OPTIONS, FAILURE_OPTIONS, RECORD_OPTIONS
from upsert_platform.tablestore.connect.transforms.options import LISTS, PREFIXES

CONNECTOR_CLASS: Final = "TableStoreSinkConnector"
BOOTSTRAP_VARIABLE: Final = "UPSERT_KAFKA_BOOTSTRAP_SERVERS"
CONSUMER: Final = "consumer.override."
PRODUCER: Final = "producer.override."
CONCURRENCY: Final = "consumer.thread.concurrency"
"""What ApsaraMQ for Kafka asks for as the concurrency of its connector; `tasks.max` is Kafka Connect's."""
DEFAULT_CONCURRENCY: Final = "6"
"""What the console takes where neither of them is given."""
POLICY: Final = "failure.handling.policy"
"""What the console calls the failure handling policy, which has no name in a configuration."""
TOLERANCES: Final = {"continue": "all", "stop": "none"}
"""Policy to the tolerance of records that fail, where the configuration does not name one."""
_CONCURRENCIES: Final = ("1", "2", "3", "6", "12")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")

READ: Final = ("name", "connector.class", "tasks.max", CONCURRENCY, POLICY, "tablestore.mode")
"""Options that are read here."""
PASSED_ON: Final = (*RECORD_OPTIONS, *CONNECTION_OPTIONS, *FAILURE_OPTIONS, *LISTS)
"""Options that the declared Tablestore tables get as they are."""
SOURCE_OPTIONS: Final = ("batch.max-records", "batch.max-bytes", "scan.parallelism", "on-data-loss")
"""Options that the declared source tables get as they are."""
WITHOUT_EFFECT: Final = {
    "buffer.size": "a batch is written in requests of 200 rows",
    "max.thread.count": "Spark's cores write",
    "bucket.count": "Spark's partitions write",
    "flush.Interval": "a batch is flushed at its end",
    "insert.order.enable": "the changes of a row are always applied in order",
    "group.id": "it names a cluster of workers; the consumer group of the topics is 'consumer.override.group.id'",
    "header.converter": "headers are passed on as bytes",
    "config.action.reload": "a project is read when the code location loads",
    **{f"{side}.converter.schemas.cache.size": "schemas are read with each record" for side in ("key", "value")},
    **{f"{side}.converter.decimal.format": "it concerns records that are written" for side in ("key", "value")},
    **{f"{side}.converter.converter.encoding": "text is UTF-8" for side in ("key", "value")},
}
"""Options that are accepted with a warning, with what takes their place."""
WITHOUT_EFFECT_PREFIXES: Final = {
    "errors.log.": "undecodable records are kept in the lake, with the reason",
    "errors.retry.": "requests are repeated until 'retry.deadline', and the next run goes on where one failed",
    "offset.storage.": "offsets are committed with the rows that were read, in the changelog of the lake",
    "config.storage.": "the configuration is this file, which is read when the code location loads",
    "status.storage.": "the status of a table is in its control record; 'upsert-platform status' and Dagster show it",
    "admin.override.": "topics of failed records are created with the properties of 'producer.override.'",
}
"""As WITHOUT_EFFECT, for every option that begins so."""
REFUSED: Final = {
    "event.parse.class": "Java classes are not loaded, but for the connector's DefaultEventParser, which is built in",
}
"""Options that are errors, with what to do instead."""
_BUILT_IN_PARSER: Final = "DefaultEventParser"
_CONVERTERS: Final = ("JsonConverter", "StringConverter", "json", "string")


def _at_least_one(text: str) -> bool:
    return text.isdecimal() and int(text) >= 1


def _power_of_two(text: str) -> bool:
    return _at_least_one(text) and int(text) & (int(text) - 1) == 0


def _utf8(text: str) -> bool:
    return text.upper() in ("UTF-8", "UTF8")


_CHECKED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "buffer.size": (_power_of_two, "a power of two"),
    "max.thread.count": (_at_least_one, "a number of at least 1"),
    "bucket.count": (_at_least_one, "a number of at least 1"),
    "flush.Interval": (_at_least_one, "a number of at least 1"),
    "insert.order.enable": (lambda text: text.lower() in ("true", "false"), "true or false"),
    "key.converter.converter.encoding": (_utf8, "UTF-8"),
    "value.converter.converter.encoding": (_utf8, "UTF-8"),
}
"""Options without effect whose values the connector checks."""


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
        self.problems.append(Problem(f"connector '{self.name}': {message}", self.place(option), severity))

    def text(self, option: str, default: str = "") -> str:
        """The value of an option, trimmed."""
        found = self.entries.get(option)
        return (found.text or "").strip() if found is not None else default

    def place(self, option: str) -> SourceLocation:
        """Return the location of an option, or that of the configuration if the option is not given."""
        found = self.entries.get(option)
        return found.location if found is not None else self.location

    def names(self, option: str) -> list[str]:
        """The items of a list."""
        return [item.strip() for item in self.text(option).split(",")] if self.text(option) else []

    def judge(self) -> None:
        """Report options that are unknown, have no effect, or are refused, those of tables included."""
        if self.name and _NAME.fullmatch(self.name) is None:
            self.tell(
                "ApsaraMQ for Kafka takes a connector name of 1 to 48 digits, lowercase letters and '-', not '-' first",
                "name",
                "warning",
            )
        concurrency = self.text(CONCURRENCY)
        if concurrency and concurrency not in _CONCURRENCIES:
            self.tell(f"option '{CONCURRENCY}' takes {', '.join(_CONCURRENCIES)}, not '{concurrency}'", CONCURRENCY)
        elif concurrency and "tasks.max" in self.entries:
            self.tell(f"option '{CONCURRENCY}' has no effect: 'tasks.max' is given", CONCURRENCY, "warning")
        self._judge_policy()
        known = (*READ, *PASSED_ON, *SOURCE_OPTIONS, *WITHOUT_EFFECT, *REFUSED)
        for name in self.entries:
            if name in (*READ, *PASSED_ON, *SOURCE_OPTIONS) or name.startswith((CONSUMER, PRODUCER, *PREFIXES)):
                continue
            reason = WITHOUT_EFFECT.get(name) or _by_prefix(name, WITHOUT_EFFECT_PREFIXES)
            refused = next((text for key, text in REFUSED.items() if name == key or name.startswith(f"{key}.")), None)
            if reason is not None:
                self._judge_idle(name, reason)
            elif name == "event.parse.class" and self.text(name).rsplit(".", 1)[-1] == _BUILT_IN_PARSER:
                continue
            elif refused is not None:
                self.tell(f"option '{name}' is not supported: {refused}", name)
            elif not name.startswith("tablestore."):
                self.tell(f"unknown option '{name}'{nearest(name, known)}", name)
        for side in ("key", "value"):
            option = f"{side}.converter"
            kind = self.text(option).rsplit(".", 1)[-1]
            if kind and kind not in _CONVERTERS:
                self.tell(f"option '{option}' takes JsonConverter or StringConverter, not '{kind}'", option)

    def tolerance(self) -> str | None:
        """The tolerance that the failure handling policy means; None where it is not given."""
        return TOLERANCES.get(self.text(POLICY).lower()) if POLICY in self.entries else None

    def _judge_policy(self) -> None:
        if POLICY not in self.entries:
            return
        tolerance = self.tolerance()
        if tolerance is None:
            self.tell(f"option '{POLICY}' takes {' or '.join(TOLERANCES)}, not '{self.text(POLICY)}'", POLICY)
            return
        for option in ("errors.tolerance", "runtime.error.tolerance"):
            declared = self.text(option).lower()
            if declared and declared != tolerance:
                self.tell(
                    f"option '{POLICY}' = '{self.text(POLICY)}' means '{option}' = '{tolerance}', but '{declared}' is"
                    " given; keep one of the two",
                    POLICY,
                )
        if tolerance == "none":
            self.tell(
                f"option '{POLICY}' = 'stop' stops the topic's partition at the first record that fails: every run"
                " fails and names it, while the other partitions are written. No batch is recorded as applied until the"
                " record is repaired, so each run writes them again",
                POLICY,
                "warning",
            )

    def _judge_idle(self, name: str, reason: str) -> None:
        takes, shown = _CHECKED.get(name, (lambda _: True, ""))
        if not takes(self.text(name)):
            self.tell(f"option '{name}' takes {shown}", name)
        else:
            self.tell(f"option '{name}' has no effect: {reason}", name, "warning")


def _by_prefix(name: str, prefixes: Mapping[str, str]) -> str | None:
    return next((text for prefix, text in prefixes.items() if name.startswith(prefix)), None)
