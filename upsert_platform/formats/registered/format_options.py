"""Options of the formats ``json-registry`` and ``proto-registry``: the registry's, and those of the data itself."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import create_model, model_validator

from upsert_platform.core.options import Boolean, Settings, option
from upsert_platform.formats.options import JsonSettings, ProtobufSettings
from upsert_platform.formats.registered.options import RegistrySettings, under


def _like(model: type[Settings], format_id: str, prefix: str) -> dict[str, Any]:
    """The fields of the settings of a format, under the name of another one."""
    fields: dict[str, Any] = {}
    kinds = get_type_hints(model, include_extras=True)
    for name, info in model.model_fields.items():
        own = f"{prefix}.{(info.alias or '').removeprefix(f'{format_id}.')}"
        described = option(own, info.default, origin="platform", description=info.description or "")
        fields[name] = (kinds[name], described)
    return fields


class JsonRegistrySettings(
    create_model(  # type: ignore[misc]
        "JsonRegistryFields",
        __base__=RegistrySettings,
        **under("json-registry", schema="JSON Schema"),
        **_like(JsonSettings, "json", "json-registry"),
    )
):
    """Options of format ``json-registry``: JSON that has a JSON Schema in a registry."""

    @model_validator(mode="after")
    def _one_policy(self) -> JsonRegistrySettings:
        if self.fail_on_missing_field and self.ignore_parse_errors:
            raise ValueError(
                "'json-registry.fail-on-missing-field' and 'json-registry.ignore-parse-errors' cannot both be true;"
                " keep one of them"
            )
        return self

    def json_settings(self) -> JsonSettings:
        """The options of the JSON itself."""
        return JsonSettings(**{name: getattr(self, name) for name in JsonSettings.model_fields})


class _ProtoFields(RegistrySettings):
    message_name: str | None = option(
        "proto-registry.message-name", None, origin="platform",
        description="Full name of the message that is written, where the schema declares several; the first one unless"
        " set. A message that is read says which one it is.",
    )  # fmt: skip
    read_default_values: Boolean = option(
        "proto-registry.read-default-values", False, origin="platform",
        description=ProtobufSettings.model_fields["read_default_values"].description or "",
    )  # fmt: skip
    null_string_literal: str = option(
        "proto-registry.write-null-string-literal", "", origin="platform",
        description=ProtobufSettings.model_fields["null_string_literal"].description or "",
    )  # fmt: skip


class ProtoRegistrySettings(
    create_model(  # type: ignore[misc]
        "ProtoRegistryFields", __base__=_ProtoFields, **under("proto-registry", schema="Proto file")
    )
):
    """Options of format ``proto-registry``: Protobuf whose proto file is in a registry."""
