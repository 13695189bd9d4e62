"""Rules that bind columns and options of a format, checked when a table is declared."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

from upsert_platform.core.errors import DeclarationError
from upsert_platform.core.options import Settings
from upsert_platform.core.types import TEXTS, LogicalType, TypeName
from upsert_platform.formats.avro.options import (
    AvroConfluentSettings,
    AvroSettings,
    DebeziumAvroConfluentSettings,
)
from upsert_platform.formats.avro.schema import AvroTypeError, schema_of_type
from upsert_platform.formats.base import Columns
from upsert_platform.formats.change.options import ChangeSettings, DebeziumJsonSettings
from upsert_platform.formats.options import MAP_NULL_KEY_MODES, CsvSettings, JsonSettings, ProtobufSettings
from upsert_platform.formats.registered.format_options import JsonRegistrySettings, ProtoRegistrySettings

Finding = tuple[str, str]
"""Severity (``error`` or ``warning``) and text."""

_RAW: Final = (
    *TEXTS, TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES, TypeName.BOOLEAN, TypeName.TINYINT,
    TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT, TypeName.FLOAT, TypeName.DOUBLE,
)  # fmt: skip
_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


def check_columns(format_id: str, columns: Columns, *, direction: str) -> list[Finding]:
    """Columns that the format cannot hold."""
    findings: list[Finding] = []
    if not columns:
        findings.append(("error", "has no column; declare at least one for this side"))
    names = [name for name, _ in columns]
    for name in sorted({name for name in names if names.count(name) > 1}):
        findings.append(("error", f"holds column '{name}' twice"))
    if format_id == "raw" and len(columns) > 1:
        listed = ", ".join(names)
        findings.append(("error", f"takes exactly one column, not {len(columns)} ({listed}); choose another format"))
    check = _COLUMN_RULES.get(format_id)
    for name, logical in columns:
        if check is not None:
            findings += [("error", f"column '{name}' {text}") for text in check(logical, direction)]
    return findings


def _json_column(logical: LogicalType, direction: str) -> Iterator[str]:
    for part in logical.parts():
        key = part.key if part.name is TypeName.MAP else part.element if part.name is TypeName.MULTISET else None
        if key is not None and key.name not in TEXTS:
            yield f"is {part}: JSON names are text, so the key of a MAP or MULTISET must be STRING, CHAR or VARCHAR"


def _csv_column(logical: LogicalType, direction: str) -> Iterator[str]:
    inner = [logical.element] if logical.name is TypeName.ARRAY else [item.type for item in logical.fields]
    for part in (logical, *inner):
        assert part is not None
        if part.name in (TypeName.MAP, TypeName.MULTISET):
            yield f"is {part}: CSV has no MAP and no MULTISET"
        elif part is not logical and part.name in (TypeName.ARRAY, TypeName.ROW):
            yield f"is {logical}: CSV nests only one level, ARRAY and ROW of scalars"
        elif part.name is TypeName.TIME and direction == "source" and (part.precision or 0) > 3:
            yield f"is {part}: CSV reads a TIME of at most 3 fraction digits"


def _raw_column(logical: LogicalType, direction: str) -> Iterator[str]:
    if logical.name not in _RAW:
        listed = "STRING, BYTES, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT and DOUBLE"
        yield f"is {logical}: raw holds {listed}"


_COLUMN_RULES: Final[dict[str, Callable[[LogicalType, str], Iterator[str]]]] = {
    "json": _json_column,
    "json-registry": _json_column,
    "debezium-json": _json_column,
    "canal-json": _json_column,
    "maxwell-json": _json_column,
    "ogg-json": _json_column,
    "csv": _csv_column,
    "raw": _raw_column,
}


def check_settings(settings: Settings, columns: Columns, *, direction: str) -> list[Finding]:
    """Values that only matter in one direction, or together with the columns."""
    match settings:
        case JsonSettings():
            return _json_settings(settings, direction, "json")
        case JsonRegistrySettings():
            return _json_settings(settings.json_settings(), direction, "json-registry") + _json_schema(
                settings, columns, direction
            )
        case ProtoRegistrySettings():
            return _proto_schema(settings, columns, direction)
        case CsvSettings():
            return _csv_settings(settings, columns, direction)
        case ChangeSettings():
            return _change_settings(settings, direction)
        case AvroSettings():
            found = _avro_columns(columns, legacy=settings.legacy_timestamps)
            if settings.codec is not None:
                found.append(("warning", "option 'avro.codec' has no effect: it is for files; see 'compression.type'"))
            return found
        case ProtobufSettings():
            return _protobuf_columns(settings, columns)
        case DebeziumAvroConfluentSettings() if direction == "sink":
            return [("error", "is for reading only; write with debezium-json")]
        case AvroConfluentSettings():
            return _avro_confluent_columns(columns, direction)
    return []


_CSV_TEXTS: Final = (*TEXTS, TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES, TypeName.ARRAY, TypeName.ROW)
"""What an empty CSV field can be."""


def is_avro_name(name: str) -> bool:
    """Return whether Avro's Java library takes a name: letters and digits of any script that are one char in Java."""

    def is_letter(character: str) -> bool:
        return character == "_" or (character <= "\uffff" and unicodedata.category(character)[0] == "L")

    return name != "" and is_letter(name[0]) and all(is_letter(c) or unicodedata.category(c) == "Nd" for c in name)


def _avro_columns(columns: Columns, *, legacy: bool) -> list[Finding]:
    findings: list[Finding] = []
    for name, logical in columns:
        if not is_avro_name(name):
            findings.append(
                ("error", f"column '{name}' has a name that Avro does not take: letters, digits and _ only")
            )
            continue
        try:
            schema_of_type(logical, name, legacy=legacy)
        except AvroTypeError as error:
            findings.append(("error", f"column '{name}' {error}"))
            continue
        if not legacy and any(map(_finer_than_millis, logical.parts())):
            text = "as Flink does, milliseconds are written and read there, though the schema says microseconds"
            findings.append(("warning", f"column '{name}' is {logical}: {text}"))
    return findings


def _avro_confluent_columns(columns: Columns, direction: str) -> list[Finding]:
    # A reader goes by the writer's schema, so a source may declare every timestamp that some writer has.
    findings = _avro_columns(columns, legacy=False)
    errors = [finding for finding in findings if finding[0] == "error"]
    if direction == "source" or errors:
        return errors
    for name, logical in columns:
        if any(part.name is TypeName.TIMESTAMP_LTZ or _finer_than_millis(part) for part in logical.parts()):
            text = f"is {logical}: avro-confluent writes TIMESTAMP of at most 3 fraction digits, and no TIMESTAMP_LTZ"
            errors.append(("error", f"column '{name}' {text}"))
    return errors


def _finer_than_millis(logical: LogicalType) -> bool:
    return logical.name in _STAMPS and (logical.precision or 0) > 3


def _json_settings(settings: JsonSettings, direction: str, prefix: str) -> list[Finding]:
    mode = settings.map_null_key_mode
    if mode in MAP_NULL_KEY_MODES:
        return []
    text = f"option '{prefix}.map-null-key.mode' takes {', '.join(MAP_NULL_KEY_MODES)}, not '{mode}'"
    return [("error" if direction == "sink" else "warning", text)]


def _json_schema(settings: JsonRegistrySettings, columns: Columns, direction: str) -> list[Finding]:
    from upsert_platform.formats.registered.json import declared_or_derived

    if direction == "source":
        return []
    try:
        declared_or_derived(settings, columns)
    except DeclarationError as error:
        return [("error", problem.message) for problem in error.problems]
    return []


def _proto_schema(settings: ProtoRegistrySettings, columns: Columns, direction: str) -> list[Finding]:
    from upsert_platform.formats.registered.proto import schema_problem
    from upsert_platform.formats.registered.proto_schema import ProtoSchemaError, derive_proto

    try:
        derived = derive_proto(columns)
    except ProtoSchemaError as error:
        return [("error", str(error))]
    if direction == "source" or settings.use_latest:
        return []
    problem = schema_problem(settings.declared_schema or derived, settings.message_name, columns)
    about = "option 'proto-registry.schema'" if settings.declared_schema else "the proto file of the columns"
    return [] if problem is None else [("error", f"{about}: {problem}")]


def _change_settings(settings: ChangeSettings, direction: str) -> list[Finding]:
    findings: list[Finding] = []
    name = next(info.alias for key, info in type(settings).model_fields.items() if key == "map_null_key_mode")
    if settings.map_null_key_mode not in MAP_NULL_KEY_MODES:
        text = f"option '{name}' takes {', '.join(MAP_NULL_KEY_MODES)}, not '{settings.map_null_key_mode}'"
        findings.append(("error" if direction == "sink" else "warning", text))
    if direction == "sink" and isinstance(settings, DebeziumJsonSettings) and settings.schema_include:
        findings.append(("error", "option 'debezium-json.schema-include' is for reading only: no schema is written"))
    return findings


def _protobuf_columns(settings: ProtobufSettings, columns: Columns) -> list[Finding]:
    from upsert_platform.formats.protobuf.schema import ProtobufSchemaError, message_class, misfits

    try:
        found = message_class(settings.descriptor_file, settings.message_name)
    except ProtobufSchemaError as error:
        return [("error", str(error))]
    findings = [("error", text) for text in misfits(found.DESCRIPTOR, columns)]
    if settings.ignore_parse_errors:
        text = "option 'protobuf.ignore-parse-errors' changes nothing: what cannot be read goes to quarantine"
        findings.append(("warning", text))
    return findings


def _csv_settings(settings: CsvSettings, columns: Columns, direction: str) -> list[Finding]:
    findings: list[Finding] = []
    if "write_scientific" in settings.model_fields_set and settings.write_scientific:
        text = (
            "option 'csv.write-bigdecimal-in-scientific-notation' changes nothing: decimals are written with all digits"
        )
        findings.append(("warning", text))
    unreadable = [name for name, kind in columns if kind.nullable and kind.name not in _CSV_TEXTS]
    if direction == "sink" and unreadable and not settings.null_literal and not settings.ignore_parse_errors:
        names = ", ".join(f"'{name}'" for name in unreadable)
        text = f"nulls of {names} are written as empty fields, which no reader takes for a value of such a type"
        findings.append(("warning", f"{text}; set 'csv.null-literal', or declare the columns NOT NULL"))
    if direction == "sink" and len(columns) == 1 and columns[0][1].nullable and not settings.null_literal:
        text = "null and empty text of its only column are written as an empty message, which cannot be read back; "
        findings.append(("warning", text + "set 'csv.null-literal', or declare the column NOT NULL"))
    return findings
