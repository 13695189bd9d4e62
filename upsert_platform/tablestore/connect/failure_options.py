"""The handling of records that cannot be written: options of the connector and of Kafka Connect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, field_validator, model_validator

from upsert_platform.core.options import Boolean, Settings, option
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.refusals import DIRTY, REFUSED, UNDECODABLE
from upsert_platform.writing.options import lowered

Tolerance = Annotated[Literal["none", "all"], BeforeValidator(lowered)]


class FailureSettings(Settings):
    """Options about failures (specification sections 1.2 and 1.4). Whatever they say, nothing is lost."""

    undecodable: Tolerance = option(
        "errors.tolerance",
        "none",
        origin="kafka-connect",
        description="`none` fails the run at a record that the converters cannot read, `all` keeps it aside.",
    )
    dead_letters: str | None = option(
        "errors.deadletterqueue.topic.name",
        None,
        origin="kafka-connect",
        description="Topic that gets a copy of each record that the converters cannot read; `errors.tolerance` = `all`"
        " only.",
    )
    dead_letter_context: Boolean = option(
        "errors.deadletterqueue.context.headers.enable",
        False,
        origin="kafka-connect",
        description="Whether those copies carry headers with the place of the record and why it failed.",
    )
    dead_letter_replication: int = option(
        "errors.deadletterqueue.topic.replication.factor",
        3,
        origin="kafka-connect",
        description="Replicas of that topic when it is created.",
        ge=1,
    )
    dirty: Tolerance = option(
        "runtime.error.tolerance",
        "none",
        origin="tablestore",
        description="`none` fails the run at a record that cannot become a row, or whose row Tablestore will not take;"
        " `all` keeps it aside.",
    )
    mode: Annotated[Literal["ignore", "kafka", "tablestore"], BeforeValidator(lowered)] = option(
        "runtime.error.mode",
        "ignore",
        origin="tablestore",
        description="Where records kept aside are reported besides the lake: nowhere, in a topic, or in a table.",
    )
    bootstrap_servers: str | None = option(
        "runtime.error.bootstrap.servers",
        None,
        origin="tablestore",
        description="Brokers of the error topic; `runtime.error.mode` = `kafka` only.",
    )
    topic: str | None = option(
        "runtime.error.topic.name",
        None,
        origin="tablestore",
        description="The error topic; `runtime.error.mode` = `kafka` only.",
    )
    table: str | None = option(
        "runtime.error.table.name",
        None,
        origin="tablestore",
        description="The error table, in the same instance; `runtime.error.mode` = `tablestore` only.",
    )

    @field_validator("table")
    @classmethod
    def _table_name_is_allowed(cls, value: str | None) -> str | None:
        if value and not limits.is_valid_name(value):
            raise ValueError("takes a letter or '_', then letters, digits and '_', 255 characters at most")
        return value

    @model_validator(mode="after")
    def _reporters_are_complete(self) -> Self:
        needed = {
            "kafka": {
                "runtime.error.bootstrap.servers": self.bootstrap_servers,
                "runtime.error.topic.name": self.topic,
            },
            "tablestore": {"runtime.error.table.name": self.table},
        }
        for name, value in needed.get(self.mode, {}).items():
            if not value:
                raise ValueError(f"'runtime.error.mode' = '{self.mode}' needs '{name}'")
        return self

    @property
    def fatal(self) -> frozenset[str]:
        """Kinds of errors that fail a run; see `upsert_platform.tablestore.connect.refusals`."""
        undecodable = {UNDECODABLE} if self.undecodable == "none" else set()
        return frozenset(undecodable | ({DIRTY, REFUSED} if self.dirty == "none" else set()))

    def option_of(self, error: str) -> str:
        """The option that says whether an error is tolerated."""
        return "errors.tolerance" if error == UNDECODABLE else "runtime.error.tolerance"

    @property
    def reports_to_topic(self) -> bool:
        """Return whether refused records are reported in a topic, with their headers."""
        return self.dirty == "all" and self.mode == "kafka"

    @property
    def reports_to_table(self) -> bool:
        """Return whether refused records are reported in a table."""
        return self.dirty == "all" and self.mode == "tablestore"

    @property
    def copies_undecodable(self) -> bool:
        """Return whether undecodable records are copied to a topic."""
        return self.undecodable == "all" and self.dead_letters is not None

    @property
    def needs_headers(self) -> bool:
        """Return whether headers of records are needed."""
        return self.reports_to_topic or self.copies_undecodable

    def topics(self, *, default_servers: str) -> Iterator[tuple[str, str, str]]:
        """Option, servers and name of each topic that reports are sent to."""
        if self.reports_to_topic and self.topic:
            yield "runtime.error.topic.name", self.bootstrap_servers or default_servers, self.topic
        if self.copies_undecodable and self.dead_letters:
            yield "errors.deadletterqueue.topic.name", default_servers, self.dead_letters

    def without_effect(self) -> Iterator[tuple[str, str]]:
        """Options that do nothing as configured, with the reason."""
        if self.mode != "ignore" and self.dirty == "none":
            yield "runtime.error.mode", "'runtime.error.tolerance' = 'none' fails the run, and nothing is reported"
        if self.dead_letters and self.undecodable == "none":
            yield (
                "errors.deadletterqueue.topic.name",
                "'errors.tolerance' = 'none' fails the run, and nothing is copied",
            )
