"""Options of the change data formats, as settings models; names and defaults as in Apache Flink's format pages."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, create_model

from upsert_platform.core.options import Boolean, Settings, option
from upsert_platform.formats.options import JsonSettings, MapNullKeyMode, TimestampStandard


class ChangeSettings(Settings):
    """Options that the change data formats share; each format has them under its own name."""

    ignore_parse_errors: Boolean = False
    timestamp_standard: TimestampStandard = "SQL"
    map_null_key_mode: MapNullKeyMode = "FAIL"
    map_null_key_literal: str = "null"
    encode_decimal_as_plain_number: Boolean = False
    encode_ignore_null_fields: Boolean = False

    def json_settings(self) -> JsonSettings:
        """The same choices for rows inside the messages; Flink reads them with its tree parser."""
        shared = {name: getattr(self, name) for name in ChangeSettings.model_fields}
        return JsonSettings(**shared, decode_json_parser_enabled=False)


def _shared(prefix: str) -> dict[str, Any]:
    """The shared fields under the names of one format, described as those of format json are."""
    fields: dict[str, Any] = {}
    kinds = get_type_hints(JsonSettings, include_extras=True)
    for name, base in ChangeSettings.model_fields.items():
        like = JsonSettings.model_fields[name]
        own = f"{prefix}.{(like.alias or '').removeprefix('json.')}"
        described = option(own, base.default, origin="flink", description=like.description or "")
        fields[name] = (kinds[name], described)
    return fields


class _SchemaInclude(ChangeSettings):
    schema_include: Boolean = option(
        "debezium-json.schema-include", False, origin="flink",
        description="Messages carry their Kafka Connect schema: the change stands under 'payload'. Reading only.",
    )  # fmt: skip


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression ({error})") from None
    return value


Pattern = Annotated[str, AfterValidator(_pattern)]


class _Filters(ChangeSettings):
    database_include: Pattern | None = option(
        "canal-json.database.include", None, origin="flink",
        description="Regular expression that the whole name of the database must match; other changes are passed over.",
    )  # fmt: skip
    table_include: Pattern | None = option(
        "canal-json.table.include", None, origin="flink",
        description="Regular expression that the whole name of the table must match; other changes are passed over.",
    )  # fmt: skip


class DebeziumJsonSettings(
    create_model("DebeziumJsonFields", __base__=_SchemaInclude, **_shared("debezium-json"))  # type: ignore[misc]
):
    """Options of format ``debezium-json``."""


class CanalJsonSettings(
    create_model("CanalJsonFields", __base__=_Filters, **_shared("canal-json"))  # type: ignore[misc]
):
    """Options of format ``canal-json``."""


class MaxwellJsonSettings(
    create_model("MaxwellJsonFields", __base__=ChangeSettings, **_shared("maxwell-json"))  # type: ignore[misc]
):
    """Options of format ``maxwell-json``."""


class OggJsonSettings(
    create_model("OggJsonFields", __base__=ChangeSettings, **_shared("ogg-json"))  # type: ignore[misc]
):
    """Options of format ``ogg-json``."""
