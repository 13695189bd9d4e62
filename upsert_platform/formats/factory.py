"""The decoder and encoder of a declared format, and what is wrong with its declaration.

Options are given by names with the format's prefix and without the side's: ``key.json.ignore-parse-errors`` of a table
is passed as ``json.ignore-parse-errors``. Columns are those of one side (the key, or the value) in declared order.
Everything heavy (pyarrow, fastavro) is imported when a decoder or encoder is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from upsert_platform.core.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import Settings, nearest, read_settings
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
from upsert_platform.formats.registered.format_options import JsonRegistrySettings, ProtoRegistrySettings
from upsert_platform.formats.registered.options import RegistrySettings, passed_over
from upsert_platform.formats.registered.registry import HttpSchemaRegistry, SchemaRegistry
from upsert_platform.formats.registered.subjects import Destination
from upsert_platform.formats.validate import check_columns, check_settings

if TYPE_CHECKING:
    from upsert_platform.formats.change.images import ImagesEncoder


@dataclass(frozen=True, slots=True)
class Format:
    """The description of a format that is available before the format is loaded.

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
    "json-registry": Format(JsonRegistrySettings),
    "proto-registry": Format(ProtoRegistrySettings),
    "debezium-json": Format(DebeziumJsonSettings, changes=True),
    "debezium-avro-confluent": Format(DebeziumAvroConfluentSettings, changes=True),
    "canal-json": Format(CanalJsonSettings, changes=True),
    "maxwell-json": Format(MaxwellJsonSettings, changes=True),
    "ogg-json": Format(OggJsonSettings, changes=True),
}


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
        registry: of formats that have one; one reached over HTTP at the declared address if None.
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
            from upsert_platform.formats.protobuf.schema import message_class

            message = message_class(settings.descriptor_file, settings.message_name)
            return ProtobufDecoder(columns, message, read_default_values=settings.read_default_values)
        case JsonRegistrySettings():
            from upsert_platform.formats.registered.json import JsonRegistryDecoder

            return JsonRegistryDecoder(columns, settings, registry or HttpSchemaRegistry(settings))
        case ProtoRegistrySettings():
            from upsert_platform.formats.registered.proto import ProtoRegistryDecoder

            return ProtoRegistryDecoder(columns, settings, registry or HttpSchemaRegistry(settings))
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
    topic: str | None = None,
    side: Literal["key", "value"] = "value",
) -> Encoder:
    """Builds the encoder of one side of a topic.

    Args:
        registry: of formats that have one; one reached over HTTP at the declared address if None.
        topic: that is written, after which subjects of a registry are named.
        side: of its records.

    Raises:
        DeclarationError: unknown format, or options that `validate_format` reports.
    """
    settings = _settings(format_id, options)
    written = Destination(topic, side)
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
            from upsert_platform.formats.protobuf.schema import message_class

            message = message_class(settings.descriptor_file, settings.message_name)
            return ProtobufEncoder(columns, message, null_text=settings.null_string_literal)
        case JsonRegistrySettings():
            from upsert_platform.formats.registered.json import JsonRegistryEncoder

            return JsonRegistryEncoder(columns, settings, registry or HttpSchemaRegistry(settings), written=written)
        case ProtoRegistrySettings():
            from upsert_platform.formats.registered.proto import ProtoRegistryEncoder

            return ProtoRegistryEncoder(columns, settings, registry or HttpSchemaRegistry(settings), written=written)
        case AvroSettings():
            from upsert_platform.formats.avro.encoder import AvroEncoder

            return AvroEncoder(columns, settings)
        case DebeziumAvroConfluentSettings():
            raise DeclarationError([Problem(f"format '{format_id}' is for reading only; write with debezium-json")])
        case AvroConfluentSettings():
            from upsert_platform.formats.avro.confluent import AvroConfluentEncoder

            reached = registry or HttpSchemaRegistry(settings)
            return AvroConfluentEncoder(columns, reached, settings=settings, written=written)
        case ChangeSettings():
            from upsert_platform.formats.change.encoder import FRAMES, ChangeEncoder

            return ChangeEncoder(columns, settings, FRAMES[format_id])
    raise AssertionError(settings)


def build_images_encoder(
    format_id: str, columns: Columns, options: Mapping[str, str], *, name: str, key: Sequence[str]
) -> ImagesEncoder:
    """Builds the encoder of changes with their images before and after.

    Args:
        format_id: ``debezium-json`` or ``canal-json``.
        name: of the table, whose parts the messages tell.
        key: names of its primary key.

    Raises:
        DeclarationError: options that `validate_format` reports.
    """
    from upsert_platform.formats.change.images import ImagesEncoder, TableId

    settings = _settings(format_id, options)
    assert isinstance(settings, ChangeSettings)
    return ImagesEncoder(format_id, columns, settings, TableId.parse(name, key))


def validate_format(
    format_id: str,
    options: Mapping[str, str],
    columns: Columns,
    *,
    side: Literal["key", "value"],
    direction: Literal["source", "sink"],
    subject: str,
    location: SourceLocation,
) -> list[Problem]:
    """Return the problems of the format of one side of a declared table; empty if it can be used.

    Args:
        subject: what messages begin with, for example ``table 'users'``.
    """
    found = FORMATS.get(format_id)
    if found is None:
        hint = nearest(format_id, FORMATS)
        known = ", ".join(FORMATS)
        return [Problem(f"{subject}: unknown {side} format '{format_id}'{hint}; known are {known}", location)]
    declared = options if isinstance(options, Options) else Options(options)
    told: list[tuple[str, str, str]] = []
    if issubclass(found.settings, RegistrySettings):
        declared, told = _without_passed_over(declared, format_id)
    settings, problems = read_settings(found.settings, declared, subject=subject, location=location)
    problems += [
        Problem(f"{subject}: {text}", declared.location(name) or location, severity) for name, severity, text in told
    ]
    about = f"{subject}: {side} format '{format_id}'"
    texts = check_columns(format_id, columns, direction=direction)
    if settings is not None:
        texts += check_settings(settings, columns, direction=direction)
    return problems + [Problem(f"{about}: {text}", location, severity) for severity, text in texts]


def _without_passed_over(options: Options, format_id: str) -> tuple[Options, list[tuple[str, str, str]]]:
    kept, told = passed_over(options, format_id)
    places = {name: place for name in options if (place := options.location(name)) is not None}
    return Options(kept, places), told


def _settings(format_id: str, options: Mapping[str, str]) -> Settings:
    found = FORMATS.get(format_id)
    if found is None:
        raise DeclarationError([Problem(f"unknown format '{format_id}'; known are {', '.join(FORMATS)}")])
    subject = f"format '{format_id}'"
    kept = passed_over(options, format_id)[0] if issubclass(found.settings, RegistrySettings) else options
    settings, problems = read_settings(
        found.settings, Options(kept), subject=subject, location=SourceLocation("(options)")
    )
    if settings is None:
        raise DeclarationError(problems)
    return settings
