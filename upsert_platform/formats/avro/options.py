"""Options of the Avro formats, as settings models; names and defaults as in Apache Flink's format pages."""

from __future__ import annotations

from typing import Literal

from pydantic import create_model

from upsert_platform.core.options import Boolean, Settings, option
from upsert_platform.formats.registered.options import RegistrySettings, under


class AvroSettings(Settings):
    """Options of format ``avro``."""

    encoding: Literal["binary", "json"] = option(
        "avro.encoding", "binary", origin="flink",
        description="Avro's binary encoding, or its JSON encoding.",
    )  # fmt: skip
    codec: str | None = option(
        "avro.codec", None, origin="flink",
        description="Accepted with a warning: it compresses files of Avro, and a message is not one.",
    )  # fmt: skip
    legacy_timestamps: Boolean = option(
        "avro.timestamp_mapping.legacy", True, origin="flink",
        description="Map TIMESTAMP to timestamp-millis and have no TIMESTAMP_LTZ, as Flink did before 1.19.",
    )  # fmt: skip


class AvroConfluentSettings(RegistrySettings):
    """Options of format ``avro-confluent``: Avro with a schema registry."""


class DebeziumAvroConfluentSettings(
    create_model(  # type: ignore[misc]
        "DebeziumAvroConfluentFields", __base__=AvroConfluentSettings, **under("debezium-avro-confluent")
    )
):
    """Options of format ``debezium-avro-confluent``; those for writing are accepted as Flink accepts them."""
