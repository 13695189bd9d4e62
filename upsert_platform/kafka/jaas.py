"""The one-line JAAS configuration of Java Kafka clients (`sasl.jaas.config`), as librdkafka settings.

Grammar: ``<class> <flag> (name=value)* ;`` with one module, values bare, or in double or single quotes with the escapes
of Java's StreamTokenizer, which reads it there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<end>;)|(?P<name>[A-Za-z_][\w.\-]*)\s*=\s*"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\\]|\\.)*)(?P=quote)|(?P<bare>[^\s;\"']+)))",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
CLIENT_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
CLIENT_SECRET: Final = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_HEAD: Final = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?=[\s;])")
_HINT: Final = 'write: org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'


class JaasError(ValueError):
    """The text is not a JAAS configuration that the platform can use. The message shows no value of it."""


def read_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Splits a JAAS configuration.

    Returns:
        The last segment of the module's class name (vendors relocate the package) and its options.

    Raises:
        JaasError: two modules, a missing semicolon or another syntax error.
    """
    head = _HEAD.match(text)
    if head is None:
        raise JaasError(f"is not '<login module> <flag> name=value ... ;'; {_HINT}")
    if head["flag"].lower() not in _FLAGS:
        raise JaasError(f"has no control flag ({', '.join(_FLAGS)}) after the login module; {_HINT}")
    options: dict[str, str] = {}
    position = head.end()
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            if not text[position:].strip():
                raise JaasError("does not end with ';'")
            raise JaasError(f"cannot be read after option {len(options)} (quotes, '=' or ';' missing?); {_HINT}")
        position = match.end()
        if match["end"]:
            break
        value = match["bare"] if match["quoted"] is None else _ESCAPED.sub(_unescaped, match["quoted"])
        options[match["name"]] = value
    if text[position:].strip():
        raise JaasError("configures more than one login module; keep one")
    return head["module"].rsplit(".", 1)[-1].rsplit("$", 1)[-1], options


def _unescaped(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPES.get(text, text)


def client_settings(text: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The librdkafka settings that say the same.

    Args:
        properties: the other declared client properties (mechanism, Kerberos service, token endpoint).

    Raises:
        JaasError: an unknown login module, a missing option, or one without a counterpart.
    """
    module, options = read_jaas(text)
    match module:
        case "PlainLoginModule":
            return {"sasl.username": _need(options, "username"), "sasl.password": _need(options, "password")}
        case "ScramLoginModule":
            if options.get("tokenauth", "false").lower() == "true":
                raise JaasError("asks for a delegation token (tokenauth), which the client cannot use; use a user")
            return {"sasl.username": _need(options, "username"), "sasl.password": _need(options, "password")}
        case "Krb5LoginModule":
            return _kerberos(options, properties)
        case "OAuthBearerLoginModule":
            if "sasl.oauthbearer.token.endpoint.url" not in properties:
                raise JaasError("uses OAuthBearerLoginModule; set 'sasl.oauthbearer.token.endpoint.url' too")
            return _client_credentials(options, properties)
    # What stands there may be a password that was pasted in the wrong place.
    named = f"the login module '{module}'" if module.endswith("LoginModule") else "an unknown login module"
    raise JaasError(
        f"names {named}; known are PlainLoginModule, ScramLoginModule, Krb5LoginModule and OAuthBearerLoginModule"
    )


def _client_credentials(options: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Since Kafka 4 the credentials are properties, which win over the older options of the module."""
    settings = {"sasl.oauthbearer.method": "oidc"}
    for name, option, names in (
        ("sasl.oauthbearer.client.id", "clientId", CLIENT_ID),
        ("sasl.oauthbearer.client.secret", "clientSecret", CLIENT_SECRET),
    ):
        if not any(other in properties for other in names):
            if option not in options:
                raise JaasError(
                    f"uses OAuthBearerLoginModule without '{option}'; set it there, or '{names[0]}' among the client's"
                    " properties, as Kafka 4 has it"
                )
            settings[name] = options[option]
    if "scope" in options and "sasl.oauthbearer.scope" not in properties:
        settings["sasl.oauthbearer.scope"] = options["scope"]
    return settings


def _kerberos(options: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    if "keyTab" in options:
        settings["sasl.kerberos.keytab"] = options["keyTab"]
    if "principal" in options:
        settings["sasl.kerberos.principal"] = options["principal"]
    if "sasl.kerberos.service.name" not in properties and "serviceName" in options:
        settings["sasl.kerberos.service.name"] = options["serviceName"]
    if options.get("useTicketCache", "false").lower() == "true":
        settings["sasl.kerberos.min.time.before.relogin"] = "0"  # the cache is somebody else's: no kinit
    return settings


def _need(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise JaasError(f"has no '{name}'; {_HINT}")
    return options[name]
