"""Options of the formats that keep their schemas in a schema registry: how it is reached, and under which subject.

Each format has them under its own name. Names of options ``properties.*`` are those of the registry's Java clients and
serializers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from upsert_platform.core.options import Boolean, Settings, option


def _pem(value: str) -> str:
    if value.lower().endswith((".jks", ".p12", ".pfx")):
        raise ValueError(
            "names a Java or PKCS #12 store; convert it to PEM (keytool, then openssl pkcs12) and name that"
        )
    return value


def _refuse_password(value: object) -> object:
    raise ValueError("is not needed: a truststore in PEM form has no password")


def _basic_source(value: object) -> object:
    if value == "SASL_INHERIT":
        raise ValueError("cannot take over the login of the brokers; name it in 'basic-auth.user-info', with USER_INFO")
    return value


def _bearer_source(value: object) -> object:
    if value in ("SASL_OAUTHBEARER_INHERIT", "CUSTOM"):
        raise ValueError(
            f"takes no tokens from '{value}'; name the identity provider with OAUTHBEARER and"
            " 'properties.bearer.auth.*', or give a token in 'bearer-auth.token', with STATIC_TOKEN"
        )
    return value


_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def _strategy(value: object) -> object:
    if not isinstance(value, str):
        return value
    name = value.strip().removeprefix(_STRATEGY_PACKAGE)
    if name not in STRATEGIES:
        raise ValueError(f"takes {', '.join(STRATEGIES)}; for another rule, name the subject in the option 'subject'")
    return name


Strategy = Annotated[str, BeforeValidator(_strategy)]
BasicSource = Annotated[Literal["USER_INFO", "URL"], BeforeValidator(_basic_source)]
BearerSource = Annotated[Literal["STATIC_TOKEN", "OAUTHBEARER"], BeforeValidator(_bearer_source)]
PemFile = Annotated[str, AfterValidator(_pem)]
_MAP: Final = "avro-confluent.properties."


class RegistrySettings(Settings):
    """Options of a registry, here under the name ``avro-confluent``; see `under`."""

    url: str = option(
        "avro-confluent.url", origin="flink",
        synonyms=["avro-confluent.schema-registry.url", f"{_MAP}schema.registry.url"],
        description="Address of the schema registry; several separated by commas.",
    )  # fmt: skip
    subject: str | None = option(
        "avro-confluent.subject", None, origin="flink", synonyms=["avro-confluent.schema-registry.subject"],
        description="Subject that schemas are registered under; that of the naming strategy unless set.",
    )  # fmt: skip
    declared_schema: str | None = option(
        "avro-confluent.schema", None, origin="flink",
        description="Schema to register instead of the one derived from the columns; of the same types.",
    )  # fmt: skip
    auth_source: BasicSource | None = option(
        "avro-confluent.basic-auth.credentials-source", None, origin="flink",
        synonyms=[f"{_MAP}basic.auth.credentials.source"],
        description="Where basic credentials come from: USER_INFO (the option) or URL (in the address).",
    )  # fmt: skip
    user_info: SecretStr | None = option(
        "avro-confluent.basic-auth.user-info", None, origin="flink", synonyms=[f"{_MAP}basic.auth.user.info"],
        description="Basic credentials of the registry, as user:password.",
    )  # fmt: skip
    bearer_source: BearerSource | None = option(
        "avro-confluent.bearer-auth.credentials-source", None, origin="flink",
        synonyms=[f"{_MAP}bearer.auth.credentials.source"],
        description="Where the bearer token comes from: STATIC_TOKEN (the option), or OAUTHBEARER (an identity provider"
        " gives one for client credentials).",
    )  # fmt: skip
    bearer_token: SecretStr | None = option(
        "avro-confluent.bearer-auth.token", None, origin="flink", synonyms=[f"{_MAP}bearer.auth.token"],
        description="Bearer token of the registry.",
    )  # fmt: skip
    issuer: str | None = option(
        f"{_MAP}bearer.auth.issuer.endpoint.url", None, origin="confluent",
        description="Address at which the identity provider gives tokens; needed with OAUTHBEARER, as are the client's"
        " id and secret. It is reached with the certificates and the proxy of the registry.",
    )  # fmt: skip
    client_id: str | None = option(
        f"{_MAP}bearer.auth.client.id", None, origin="confluent", description="Id of the client.",
    )  # fmt: skip
    client_secret: SecretStr | None = option(
        f"{_MAP}bearer.auth.client.secret", None, origin="confluent", description="Secret of the client.",
    )  # fmt: skip
    scope: str | None = option(
        f"{_MAP}bearer.auth.scope", None, origin="confluent", description="Scope of the tokens that are asked for.",
    )  # fmt: skip
    logical_cluster: str | None = option(
        f"{_MAP}bearer.auth.logical.cluster", None, origin="confluent",
        description="Id of the registry behind the address, sent with every token (target-sr-cluster).",
    )  # fmt: skip
    identity_pool: str | None = option(
        f"{_MAP}bearer.auth.identity.pool.id", None, origin="confluent",
        description="Id of the identity pool, sent with every token (Confluent-Identity-Pool-Id).",
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
    key_strategy: Strategy = option(
        f"{_MAP}key.subject.name.strategy", "TopicNameStrategy", origin="confluent",
        description="How the subject of a key is named: after its topic, its record, or both. TopicNameStrategy,"
        " RecordNameStrategy or TopicRecordNameStrategy, also with their package.",
    )  # fmt: skip
    value_strategy: Strategy = option(
        f"{_MAP}value.subject.name.strategy", "TopicNameStrategy", origin="confluent",
        description="The same of a value.",
    )  # fmt: skip
    auto_register: Boolean = option(
        f"{_MAP}auto.register.schemas", True, origin="confluent",
        description="Register the schema that is written; false writes the id that it has under the subject, and"
        " refuses the write where it has none.",
    )  # fmt: skip
    use_latest: Boolean = option(
        f"{_MAP}use.latest.version", False, origin="confluent",
        description="Write with the newest schema of the subject, which has to fit the columns, and register none.",
    )  # fmt: skip
    normalize: Boolean = option(
        f"{_MAP}normalize.schemas", False, origin="confluent",
        description="Have the registry compare schemas in their normal form when one is registered or looked up.",
    )  # fmt: skip
    max_retries: int = option(
        f"{_MAP}max.retries", 2, origin="confluent", ge=0,
        description="How often a request that got no answer, 429 or 5xx is sent again, to each address.",
    )  # fmt: skip
    retries_wait: int = option(
        f"{_MAP}retries.wait.ms", 100, origin="confluent", ge=0,
        description="Milliseconds before the second try, doubled for each one after it.",
    )  # fmt: skip
    retries_max_wait: int = option(
        f"{_MAP}retries.max.wait.ms", 20_000, origin="confluent", ge=0,
        description="Milliseconds between two tries at most.",
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

    @property
    def prefix(self) -> str:
        """The format's name, with which its options begin."""
        return str(type(self).model_fields["url"].alias).removesuffix(".url")

    @model_validator(mode="after")
    def _one_subject(self) -> RegistrySettings:
        named = {"key": self.key_strategy, "value": self.value_strategy}
        for side, strategy in named.items():
            if self.subject is not None and strategy != "TopicNameStrategy":
                option_name = f"{self.prefix}.properties.{side}.subject.name.strategy"
                raise ValueError(f"'{self.prefix}.subject' and '{option_name}' both name the subject; keep one")
        if self.use_latest and self.declared_schema is not None:
            raise ValueError(
                f"'{self.prefix}.schema' and '{self.prefix}.properties.use.latest.version' both say what is written;"
                " keep one"
            )
        return self

    @model_validator(mode="after")
    def _proxy_has_host_and_port(self) -> RegistrySettings:
        if (self.proxy_host is None) != (self.proxy_port is None):
            raise ValueError(f"'{self.prefix}.properties.proxy.host' and '.proxy.port' are both set, or neither is")
        return self

    @model_validator(mode="after")
    def _credentials(self) -> RegistrySettings:
        prefix = self.prefix
        if self.auth_source == "USER_INFO" and self.user_info is None:
            raise ValueError(f"'{prefix}.basic-auth.user-info' is missing: the credentials source is USER_INFO")
        if self.auth_source == "URL" and self.user_info is not None:
            raise ValueError(f"'{prefix}.basic-auth.user-info' is set, but the credentials source is URL; keep one")
        if self.bearer_source == "STATIC_TOKEN" and self.bearer_token is None:
            raise ValueError(f"'{prefix}.bearer-auth.token' is missing: the credentials source is STATIC_TOKEN")
        if (self.bearer_token is not None or self.bearer_source is not None) and self.user_info is not None:
            raise ValueError(f"'{prefix}.basic-auth.*' and '{prefix}.bearer-auth.*' are both set; keep one")
        self._check_client_credentials()
        if self.keystore_password is not None and self.keystore is None:
            raise ValueError(f"'{prefix}.ssl.keystore.password' is set without '{prefix}.ssl.keystore.location'")
        return self

    def _check_client_credentials(self) -> None:
        name = f"{self.prefix}.properties.bearer.auth"
        given = {
            "issuer.endpoint.url": self.issuer,
            "client.id": self.client_id,
            "client.secret": self.client_secret,
        }
        source = f"'{self.prefix}.bearer-auth.credentials-source'"
        if self.bearer_source == "OAUTHBEARER":
            missing = next((part for part, value in given.items() if value is None), None)
            if missing is not None:
                raise ValueError(f"'{name}.{missing}' is missing: the credentials source is OAUTHBEARER")
            if self.bearer_token is not None:
                raise ValueError(
                    f"'{self.prefix}.bearer-auth.token' is set, but the credentials source is OAUTHBEARER; keep one"
                )
            return
        set_in_vain = next((part for part, value in {**given, "scope": self.scope}.items() if value is not None), None)
        if set_in_vain is not None:
            raise ValueError(
                f"'{name}.{set_in_vain}' is set, but {source} is not OAUTHBEARER: set it, or leave this out"
            )
        sent_with = next((part for part, value in self._sent_with_tokens().items() if value is not None), None)
        if sent_with is not None and self.bearer_token is None:
            raise ValueError(f"'{name}.{sent_with}' is sent with a bearer token, and there is none: set {source}")

    def _sent_with_tokens(self) -> dict[str, str | None]:
        return {"logical.cluster": self.logical_cluster, "identity.pool.id": self.identity_pool}


def under(prefix: str, *, schema: str = "Schema") -> dict[str, Any]:
    """The fields of the settings above under the names of another format.

    Args:
        schema: what a schema is called there.
    """
    origin = {"flink": "platform"} if prefix in ("json-registry", "proto-registry") else {}
    fields: dict[str, Any] = {}
    kinds = get_type_hints(RegistrySettings, include_extras=True)
    for name, info in RegistrySettings.model_fields.items():
        extra: Any = info.json_schema_extra
        renamed = [
            other.replace("avro-confluent.", f"{prefix}.", 1) for other in (info.alias or "", *extra["synonyms"])
        ]
        default = ... if info.is_required() else info.default
        described = option(
            renamed[0],
            default,
            origin=origin.get(extra["origin"], extra["origin"]),
            synonyms=renamed[1:],
            description=(info.description or "").replace("Schema to register", f"{schema} to register"),
        )
        fields[name] = (kinds[name], described)
    return fields


WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("specific.avro.reader", "schema.reflection", "avro.reflection.allow.null", "avro.use.logical.type.converters",
         "avro.remove.java.properties", "specific.avro.key.type", "specific.avro.value.type", "json.key.type",
         "json.value.type", "specific.protobuf.key.type", "specific.protobuf.value.type",
         "derive.type", "type.property"),
        "it tells Java which class to make of a message; here a message is a row of the declared columns",
    ),
    "max.schemas.per.subject": "schemas are remembered for as long as a task runs",
    "latest.compatibility.strict": "the newest schema is checked against the columns in every case",
}  # fmt: skip
"""Names below ``properties.`` that are accepted with a warning, and why they change nothing."""
REFUSED: Final[Mapping[str, str]] = {
    "use.schema.id": "set 'use.latest.version', or give the schema itself in the option 'schema'",
    "use.latest.with.metadata": "metadata is not compared; set 'use.latest.version', or give the schema in 'schema'",
    "context.name.strategy": "classes cannot be loaded; end the address with /contexts/<name>, or begin 'subject' with"
    " :.<name>:",
    "id.compatibility.strict": "it goes with 'use.schema.id'; give the schema itself in the option 'schema'",
    "rule.executors": "rules of a data contract are classes, and leaving them out would write other data",
    "rule.actions": "rules of a data contract are classes, and leaving them out would write other data",
    "json.fail.invalid.schema": "messages are checked against the declared columns, not against their JSON Schema;"
    " declare columns NOT NULL, and set 'fail-on-missing-field'",
    "schema.registry.ssl.keystore.type": "a keystore is a PEM file; convert it and remove the option",
    "schema.registry.ssl.truststore.type": "a truststore is a PEM file; convert it and remove the option",
    "schema.registry.ssl.key.password": "the key in the keystore has the password of 'ssl.keystore.password'",
    "schema.registry.ssl.endpoint.identification.algorithm": "the name of the server is checked in every case",
    "bearer.auth.custom.provider.class": "classes cannot be loaded; set 'bearer.auth.credentials.source' to OAUTHBEARER"
    " or STATIC_TOKEN",
}  # fmt: skip
"""Names below ``properties.`` that are an error, and what to do instead."""


def passed_over(options: Mapping[str, str], prefix: str) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Options without those that change nothing or are refused, and what is to be said of these.

    Returns:
        The other options, and for each left out its name, severity and text.
    """
    kept, told = dict(options), []
    for name in options:
        short = name.removeprefix(f"{prefix}.properties.")
        if short == name:
            continue
        if short in WITHOUT_EFFECT:
            told.append((name, "warning", f"option '{name}' changes nothing: {WITHOUT_EFFECT[short]}"))
        elif short in REFUSED and options[name].strip().lower() == "false":
            pass  # that is what it is without the option
        elif short in REFUSED:
            told.append((name, "error", f"option '{name}' is refused: {REFUSED[short]}"))
        else:
            continue
        del kept[name]
    return kept, told
