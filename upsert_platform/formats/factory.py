"""The decoder and encoder of a declared format, and what is wrong with its declaration.

Options are given by names with the format's prefix and without the side's: ``key.json.ignore-parse-errors`` of a table
is passed as ``json.ignore-parse-errors``. Columns are those of one side (the key, or the value) in declared order.
Everything heavy (pyarrow, fastavro) is imported when a decoder or encoder is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from upsert_platform.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.formats.avro.options import (
    AvroConfluentSettings,
    AvroSettings,
    DebeziumAvroConfluentSettings,
)
from upsert_platform.formats.base import Columns, Decoder, Encoder
from upsert_platform.formats.change.metadata import plan_metadata
from upsert_platform.formats.change.options import (
    CanalJsonSettings,
    ChangeSettings,
    DebeziumJsonSettings,
    MaxwellJsonSettings,
    OggJsonSettings,
)
from upsert_platform.formats.options import CsvSettings, JsonSettings, ProtobufSettings, RawSettings
from upsert_platform.formats.registry import HttpSchemaRegistry, SchemaRegistry
from upsert_platform.formats.validate import check_columns, check_settings
from upsert_platform.model import Options
from upsert_platform.options import Settings, nearest, read_settings


@dataclass(frozen=True, slots=True)
class Format:
    """What is known of a format without loading it.

    Attributes:
        settings: the model of its options, all of which begin with the format's name and a point.
        changes: messages carry row kinds (change data capture), so it serves no upsert-kafka table.
    """

    settings: type[Settings]
    changes: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "json": Format(JsonSettings),
    "csv": Format(CsvSettings),
    "raw": Format(RawSettings),
    "avro": Format(AvroSettings),
    "avro-confluent": Format(AvroConfluentSettings),
    "protobuf": Format(ProtobufSettings),
    "debezium-json": Format(DebeziumJsonSettings, changes=True),
    "debezium-avro-confluent": Format(DebeziumAvroConfluentSettings, changes=True),
    "canal-json": Format(CanalJsonSettings, changes=True),
    "maxwell-json": Format(MaxwellJsonSettings, changes=True),
    "ogg-json": Format(OggJsonSettings, changes=True),
}


_NO_SUBJECT: Final = (
    "format 'avro-confluent' needs a subject to register schemas under; "
    "set 'avro-confluent.subject', or write to a single topic"
)


def default_subject(topic: str, side: Literal["key", "value"]) -> str:
    """The subject of a schema registry for one side of a topic, as Flink fills it in."""
    return f"{topic}-{side}"


def build_decoder(
    format_id: str,
    columns: Columns,
    options: Mapping[str, str],
    *,
    registry: SchemaRegistry | None = None,
    metadata: Columns = (),
) -> Decoder:
    """Builds the decoder of one side of a topic.

    Args:
        registry: of format ``avro-confluent``; one reached over HTTP at the declared address if None.
        metadata: of change data formats, metadata columns that follow the declared ones in the decoded rows, each by
            its key (without ``value.``) and type; see `change_metadata.METADATA`.

    Raises:
        DeclarationError: unknown format or metadata, or options that `validate_format` reports.
    """
    settings = _settings(format_id, options)
    match settings:
        case JsonSettings():
            from upsert_platform.formats.json.decoder import JsonDecoder

            return JsonDecoder(columns, settings)
        case CsvSettings():
            from upsert_platform.formats.csv.decoder import CsvDecoder

            return CsvDecoder(columns, settings)
        case RawSettings():
            from upsert_platform.formats.raw import RawDecoder

            return RawDecoder(columns, settings)
        case ProtobufSettings():
            from upsert_platform.formats.protobuf.codec import ProtobufDecoder

            return ProtobufDecoder(columns, settings)
        case AvroSettings():
            from upsert_platform.formats.avro.decoder import AvroDecoder

            return AvroDecoder(columns, settings)
        case DebeziumAvroConfluentSettings():
            from upsert_platform.formats.avro.confluent import AvroConfluentDecoder
            from upsert_platform.formats.change.decoder import DEBEZIUM, EnvelopeDecoder, image_columns

            root = AvroConfluentDecoder(image_columns(columns, DEBEZIUM), registry or HttpSchemaRegistry(settings))
            return EnvelopeDecoder(columns, root, DEBEZIUM, plan_metadata(format_id, metadata))
        case AvroConfluentSettings():
            from upsert_platform.formats.avro.confluent import AvroConfluentDecoder

            return AvroConfluentDecoder(columns, registry or HttpSchemaRegistry(settings))
        case DebeziumJsonSettings() | OggJsonSettings():
            from upsert_platform.formats.change.decoder import DEBEZIUM, OGG, json_envelope

            envelope = DEBEZIUM if isinstance(settings, DebeziumJsonSettings) else OGG
            return json_envelope(columns, settings, envelope, plan_metadata(format_id, metadata))
        case CanalJsonSettings() | MaxwellJsonSettings():
            from upsert_platform.formats.change.list_decoder import OldValuesDecoder

            return OldValuesDecoder(columns, settings, plan_metadata(format_id, metadata))
    raise AssertionError(settings)


def build_encoder(
    format_id: str,
    columns: Columns,
    options: Mapping[str, str],
    *,
    registry: SchemaRegistry | None = None,
    subject: str | None = None,
) -> Encoder:
    """Builds the encoder of one side of a topic.

    Args:
        registry: of format ``avro-confluent``; one reached over HTTP at the declared address if None.
        subject: of format ``avro-confluent``, where its option is not set: see `default_subject`.

    Raises:
        DeclarationError: unknown format, or options that `validate_format` reports.
    """
    settings = _settings(format_id, options)
    match settings:
        case JsonSettings():
            from upsert_platform.formats.json.encoder import JsonEncoder

            return JsonEncoder(columns, settings)
        case CsvSettings():
            from upsert_platform.formats.csv.encoder import CsvEncoder

            return CsvEncoder(columns, settings)
        case RawSettings():
            from upsert_platform.formats.raw import RawEncoder

            return RawEncoder(columns, settings)
        case ProtobufSettings():
            from upsert_platform.formats.protobuf.codec import ProtobufEncoder

            return ProtobufEncoder(columns, settings)
        case AvroSettings():
            from upsert_platform.formats.avro.encoder import AvroEncoder

            return AvroEncoder(columns, settings)
        case DebeziumAvroConfluentSettings():
            raise DeclarationError([Problem(f"format '{format_id}' is for reading only; write with debezium-json")])
        case AvroConfluentSettings():
            from upsert_platform.formats.avro.confluent import AvroConfluentEncoder

            under = settings.subject or subject
            if under is None:
                raise DeclarationError([Problem(_NO_SUBJECT)])
            reached = registry or HttpSchemaRegistry(settings)
            return AvroConfluentEncoder(columns, reached, subject=under, declared_schema=settings.declared_schema)
        case ChangeSettings():
            from upsert_platform.formats.change.encoder import FRAMES, ChangeEncoder

            return ChangeEncoder(columns, settings, FRAMES[format_id])
    raise AssertionError(settings)


def validate_format(
    format_id: str,
    options: Mapping[str, str],
    columns: Columns,
    *,
    side: Literal["key", "value"],
    direction: Literal["source", "sink"],
    subject: str,
    location: SourceLocation,
    truncate_timestamps: bool = False,
) -> list[Problem]:
    """What is wrong with the format of one side of a declared table; empty if it can be used.

    Args:
        subject: what messages begin with, for example ``table 'users'``.
        truncate_timestamps: allow TIMESTAMP(7..9), whose values are cut to microseconds.
    """
    found = FORMATS.get(format_id)
    if found is None:
        hint = nearest(format_id, FORMATS)
        known = ", ".join(FORMATS)
        return [Problem(f"{subject}: unknown {side} format '{format_id}'{hint}; known are {known}", location)]
    declared = options if isinstance(options, Options) else Options(options)
    settings, problems = read_settings(found.settings, declared, subject=subject, location=location)
    about = f"{subject}: {side} format '{format_id}'"
    texts = check_columns(format_id, columns, direction=direction, truncate_timestamps=truncate_timestamps)
    if settings is not None:
        texts += check_settings(settings, columns, direction=direction)
    return problems + [Problem(f"{about}: {text}", location, severity) for severity, text in texts]


def _settings(format_id: str, options: Mapping[str, str]) -> Settings:
    found = FORMATS.get(format_id)
    if found is None:
        raise DeclarationError([Problem(f"unknown format '{format_id}'; known are {', '.join(FORMATS)}")])
    subject = f"format '{format_id}'"
    settings, problems = read_settings(
        found.settings, Options(options), subject=subject, location=SourceLocation("(options)")
    )
    if settings is None:
        raise DeclarationError(problems)
    return settings
