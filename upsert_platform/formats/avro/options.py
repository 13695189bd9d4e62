"""Options of the Avro formats, as settings models; names and defaults as in Apache Flink's format pages."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import AfterValidator, BeforeValidator, SecretStr, create_model, model_validator

from upsert_platform.options import Boolean, Settings, option


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


def _pem(value: str) -> str:
    if value.lower().endswith((".jks", ".p12", ".pfx")):
        raise ValueError(
            "names a Java or PKCS #12 store; convert it to PEM (keytool, then openssl pkcs12) and name that"
        )
    return value


def _refuse_password(value: object) -> object:
    raise ValueError("is not needed: a truststore in PEM form has no password")


PemFile = Annotated[str, AfterValidator(_pem)]
_MAP: Final = "avro-confluent.properties."


class AvroConfluentSettings(Settings):
    """Options of format ``avro-confluent``: Avro with a schema registry."""

    url: str = option(
        "avro-confluent.url", origin="flink",
        synonyms=["avro-confluent.schema-registry.url", f"{_MAP}schema.registry.url"],
        description="Address of the schema registry; several separated by commas.",
    )  # fmt: skip
    subject: str | None = option(
        "avro-confluent.subject", None, origin="flink", synonyms=["avro-confluent.schema-registry.subject"],
        description="Subject that schemas are registered under; <topic>-key or <topic>-value unless set.",
    )  # fmt: skip
    declared_schema: str | None = option(
        "avro-confluent.schema", None, origin="flink",
        description="Avro schema (JSON) to register instead of the one derived from the columns; of the same types.",
    )  # fmt: skip
    auth_source: Literal["USER_INFO", "URL"] | None = option(
        "avro-confluent.basic-auth.credentials-source", None, origin="flink",
        synonyms=[f"{_MAP}basic.auth.credentials.source"],
        description="Where basic credentials come from: USER_INFO (the option) or URL (in the address).",
    )  # fmt: skip
    user_info: SecretStr | None = option(
        "avro-confluent.basic-auth.user-info", None, origin="flink", synonyms=[f"{_MAP}basic.auth.user.info"],
        description="Basic credentials of the registry, as user:password.",
    )  # fmt: skip
    bearer_source: Literal["STATIC_TOKEN"] | None = option(
        "avro-confluent.bearer-auth.credentials-source", None, origin="flink",
        synonyms=[f"{_MAP}bearer.auth.credentials.source"],
        description="Where the bearer token comes from: STATIC_TOKEN.",
    )  # fmt: skip
    bearer_token: SecretStr | None = option(
        "avro-confluent.bearer-auth.token", None, origin="flink", synonyms=[f"{_MAP}bearer.auth.token"],
        description="Bearer token of the registry.",
    )  # fmt: skip
    truststore: PemFile | None = option(
        "avro-confluent.ssl.truststore.location", None, origin="flink",
        synonyms=[f"{_MAP}schema.registry.ssl.truststore.location"],
        description="File of certificate authorities to trust, in PEM form.",
    )  # fmt: skip
    truststore_password: Annotated[SecretStr | None, BeforeValidator(_refuse_password)] = option(
        "avro-confluent.ssl.truststore.password", None, origin="flink",
        synonyms=[f"{_MAP}schema.registry.ssl.truststore.password"],
        description="Refused: a truststore in PEM form has no password.",
    )  # fmt: skip
    keystore: PemFile | None = option(
        "avro-confluent.ssl.keystore.location", None, origin="flink",
        synonyms=[f"{_MAP}schema.registry.ssl.keystore.location"],
        description="File with the client's certificate and key, in PEM form.",
    )  # fmt: skip
    keystore_password: SecretStr | None = option(
        "avro-confluent.ssl.keystore.password", None, origin="flink",
        synonyms=[f"{_MAP}schema.registry.ssl.keystore.password"],
        description="Password of the key in the keystore.",
    )  # fmt: skip

    connect_timeout: int = option(
        f"{_MAP}http.connect.timeout.ms", 5_000, origin="confluent", ge=1,
        description="Milliseconds to connect to the registry.",
    )  # fmt: skip
    read_timeout: int = option(
        f"{_MAP}http.read.timeout.ms", 30_000, origin="confluent", ge=1,
        description="Milliseconds to wait for an answer of the registry.",
    )  # fmt: skip
    proxy_host: str | None = option(
        f"{_MAP}proxy.host", None, origin="confluent", description="Host of an HTTP proxy on the way to the registry.",
    )  # fmt: skip
    proxy_port: int | None = option(
        f"{_MAP}proxy.port", None, origin="confluent", ge=1, le=65_535, description="Its port; needs the host.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _proxy_has_host_and_port(self) -> AvroConfluentSettings:
        if (self.proxy_host is None) != (self.proxy_port is None):
            prefix = str(type(self).model_fields["url"].alias).removesuffix(".url")
            raise ValueError(f"'{prefix}.properties.proxy.host' and '.proxy.port' are both set, or neither is")
        return self

    @model_validator(mode="after")
    def _credentials(self) -> AvroConfluentSettings:
        prefix = str(type(self).model_fields["url"].alias).removesuffix(".url")
        if self.auth_source == "USER_INFO" and self.user_info is None:
            raise ValueError(f"'{prefix}.basic-auth.user-info' is missing: the credentials source is USER_INFO")
        if self.auth_source == "URL" and self.user_info is not None:
            raise ValueError(f"'{prefix}.basic-auth.user-info' is set, but the credentials source is URL; keep one")
        if self.bearer_source is not None and self.bearer_token is None:
            raise ValueError(f"'{prefix}.bearer-auth.token' is missing: the credentials source is STATIC_TOKEN")
        if self.bearer_token is not None and self.user_info is not None:
            raise ValueError(f"'{prefix}.basic-auth.*' and '{prefix}.bearer-auth.*' are both set; keep one")
        if self.keystore_password is not None and self.keystore is None:
            raise ValueError(f"'{prefix}.ssl.keystore.password' is set without '{prefix}.ssl.keystore.location'")
        return self


def _under(prefix: str) -> dict[str, Any]:
    """The fields of the settings above that serve reading, under the names of another format."""
    fields: dict[str, Any] = {}
    kinds = get_type_hints(AvroConfluentSettings, include_extras=True)
    for name, info in AvroConfluentSettings.model_fields.items():
        extra: Any = info.json_schema_extra
        renamed = [
            other.replace("avro-confluent.", f"{prefix}.", 1) for other in (info.alias or "", *extra["synonyms"])
        ]
        default = ... if info.is_required() else info.default
        described = option(
            renamed[0], default, origin=extra["origin"], synonyms=renamed[1:], description=info.description or ""
        )
        fields[name] = (kinds[name], described)
    return fields


class DebeziumAvroConfluentSettings(
    create_model(  # type: ignore[misc]
        "DebeziumAvroConfluentFields", __base__=AvroConfluentSettings, **_under("debezium-avro-confluent")
    )
):
    """Options of format ``debezium-avro-confluent``; those for writing are accepted as Flink accepts them."""
