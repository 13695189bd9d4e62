"""Options of message formats, as settings models.

Option names carry the format's prefix and not the side's: a table's ``key.json.ignore-parse-errors`` is read here as
``json.ignore-parse-errors``. Origin of names and defaults: the format pages of Apache Flink's table connectors.
"""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from upsert_platform.core.options import Boolean, Settings, option

TimestampStandard = Literal["SQL", "ISO-8601"]
"""How timestamps are spelled in text: a blank or a ``T`` between date and time."""


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


MapNullKeyMode = Annotated[str, BeforeValidator(_upper)]
MAP_NULL_KEY_MODES: Final = ("FAIL", "DROP", "LITERAL")


class JsonSettings(Settings):
    """Options of format ``json``."""

    fail_on_missing_field: Boolean = option(
        "json.fail-on-missing-field", False, origin="flink, tencent",
        description="Refuse a message in which a declared field is absent (an explicit null is present).",
    )  # fmt: skip
    ignore_parse_errors: Boolean = option(
        "json.ignore-parse-errors", False, origin="flink, tencent",
        description="Set a field that cannot be read to null; a message that cannot be read goes to quarantine.",
    )  # fmt: skip
    timestamp_standard: TimestampStandard = option(
        "json.timestamp-format.standard", "SQL", origin="flink",
        description="Spelling of timestamps: SQL (blank between date and time) or ISO-8601 (a T between them).",
    )  # fmt: skip
    map_null_key_mode: MapNullKeyMode = option(
        "json.map-null-key.mode", "FAIL", origin="flink",
        description="What to do with a null key of a map on writing: FAIL, DROP the entry, or write the LITERAL.",
    )  # fmt: skip
    map_null_key_literal: str = option(
        "json.map-null-key.literal", "null", origin="flink",
        description="Text written for a null key of a map when the mode is LITERAL.",
    )  # fmt: skip
    encode_decimal_as_plain_number: Boolean = option(
        "json.encode.decimal-as-plain-number", False, origin="flink",
        description="Write decimals with all their digits instead of without trailing zeros, in powers of ten.",
    )  # fmt: skip
    encode_ignore_null_fields: Boolean = option(
        "json.encode.ignore-null-fields", False, origin="flink",
        description="Leave null fields out of written objects.",
    )  # fmt: skip
    decode_json_parser_enabled: Boolean = option(
        "json.decode.json-parser.enabled", True, origin="flink",
        description="Read as Flink's streaming parser does; false reads as its tree parser does.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _one_policy(self) -> JsonSettings:
        if self.fail_on_missing_field and self.ignore_parse_errors:
            raise ValueError(
                "'json.fail-on-missing-field' and 'json.ignore-parse-errors' cannot both be true; keep one of them"
            )
        return self


def _unescape_java(text: str) -> str:
    """Undoes the escapes of a Java string literal, as Flink does for the field delimiter."""
    simple = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2]:
            return chr(int(match[2], 8))
        return simple.get(match[3], match[3])

    return re.sub(r"\\(?:u+\+?([0-9A-Fa-f]{4})|([0-3]?[0-7]{1,2})|(.))", one, text, flags=re.DOTALL)


def _one_character(value: str) -> str:
    if len(value.encode("utf-16-le")) != 2:
        raise ValueError(f"takes exactly one character, not '{value}'")
    return value


def _delimiter(value: str) -> str:
    return _one_character(_unescape_java(value))


OneCharacter = Annotated[str, AfterValidator(_one_character)]
Delimiter = Annotated[str, AfterValidator(_delimiter)]


class CsvSettings(Settings):
    """Options of format ``csv``."""

    field_delimiter: Delimiter = option(
        "csv.field-delimiter", ",", origin="flink",
        description="The character between fields; Java escapes such as \\t may be used.",
    )  # fmt: skip
    disable_quote_character: Boolean = option(
        "csv.disable-quote-character", False, origin="flink",
        description="Read and write no quotes; then no quote character may be set.",
    )  # fmt: skip
    quote_character: OneCharacter | None = option(
        "csv.quote-character", None, origin="flink",
        description="The character around quoted fields, a double quote unless set.",
    )  # fmt: skip
    allow_comments: Boolean = option(
        "csv.allow-comments", False, origin="flink",
        description="Pass over lines that start with #.",
    )  # fmt: skip
    ignore_parse_errors: Boolean = option(
        "csv.ignore-parse-errors", False, origin="flink",
        description="Set a field that cannot be read to null; a message that cannot be read goes to quarantine.",
    )  # fmt: skip
    array_element_delimiter: OneCharacter = option(
        "csv.array-element-delimiter", ";", origin="flink",
        description="The character between elements of an array and fields of a row.",
    )  # fmt: skip
    escape_character: OneCharacter | None = option(
        "csv.escape-character", None, origin="flink",
        description="The character that takes the meaning from the one after it; none unless set.",
    )  # fmt: skip
    null_literal: str | None = option(
        "csv.null-literal", None, origin="flink",
        description="The text that stands for null; none unless set.",
    )  # fmt: skip
    write_scientific: Boolean = option(
        "csv.write-bigdecimal-in-scientific-notation", True, origin="flink",
        description="Accepted, and without effect: as Flink 2.2 does, decimals are written with all their digits.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _quotes(self) -> CsvSettings:
        if self.disable_quote_character and self.quote_character is not None:
            raise ValueError("'csv.quote-character' cannot be set while 'csv.disable-quote-character' is true")
        return self


def _charset(value: str) -> str:
    try:
        codecs.lookup(value)
    except LookupError:
        raise ValueError(f"names an unknown character set, '{value}'") from None
    return value


class RawSettings(Settings):
    """Options of format ``raw``."""

    charset: Annotated[str, AfterValidator(_charset)] = option(
        "raw.charset", "UTF-8", origin="flink", description="Character set of a text column."
    )
    endianness: Literal["big-endian", "little-endian"] = option(
        "raw.endianness", "big-endian", origin="flink", description="Byte order of a number column."
    )


class ProtobufSettings(Settings):
    """Options of format ``protobuf``."""

    message_name: str = option(
        "protobuf.message-class-name", origin="flink", synonyms=["protobuf.message-name"],
        description="The message: its full name in the proto file, or its Java class.",
    )  # fmt: skip
    descriptor_file: str = option(
        "protobuf.descriptor-file", origin="platform",
        description="Compiled proto files: protoc --include_imports --descriptor_set_out=<this file>.",
    )  # fmt: skip
    ignore_parse_errors: Boolean = option(
        "protobuf.ignore-parse-errors", False, origin="flink",
        description="Changes nothing: a message that cannot be read goes to quarantine in every case.",
    )  # fmt: skip
    read_default_values: Boolean = option(
        "protobuf.read-default-values", False, origin="flink",
        description="Read absent fields as the defaults of the proto file, not as null. Scalars of proto3 that are not"
        " optional are never null.",
    )  # fmt: skip
    null_string_literal: str = option(
        "protobuf.write-null-string-literal", "", origin="flink",
        description="Written for a null text in an array or a map, where protobuf has no null.",
    )  # fmt: skip
