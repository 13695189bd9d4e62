"""Schemas by number, of a registry that asks for no login."""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.referee.errors import RefereeError, UndecodableError

_URLS = ("url", "schema-registry.url", "properties.schema.registry.url")
_OF_WRITING = {
    "subject", "schema-registry.subject", "schema", "message-name", "properties.key.subject.name.strategy",
    "properties.value.subject.name.strategy", "properties.auto.register.schemas", "properties.use.latest.version",
    "properties.normalize.schemas",
}  # fmt: skip
_SECONDS = 30


@dataclass(frozen=True)
class Registered:
    """A schema.

    Attributes:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        imports: texts of the schemas that it refers to, by the names it has for them.
    """

    kind: str
    text: str
    imports: Mapping[str, str] = field(default_factory=dict)


SchemaOf = Callable[[int], Registered]


def registry(options: Mapping[str, str], prefix: str, *, own: Collection[str] = ()) -> SchemaOf:
    """A function that gives a schema by its number, and asks for each once.

    Args:
        prefix: the format's name, with which its options begin.
        own: options of the format that are not the registry's, without the prefix.

    Raises:
        RefereeError: an option is set that the referee does not follow, or the address is missing.
    """
    short = {name.removeprefix(f"{prefix}."): value for name, value in options.items()}
    beyond = [name for name in short if name not in (*_URLS, *own) and name not in _OF_WRITING]
    if beyond or not any(name in short for name in _URLS):
        raise RefereeError(f"option '{prefix}.{(beyond or ['url'])[0]}' is beyond the referee")
    addresses = next(short[name] for name in _URLS if name in short).split(",")
    roots = [address.strip().rstrip("/") for address in addresses]
    known: dict[int, Registered] = {}

    def schema_of(number: int) -> Registered:
        if number not in known:
            found = _ask(roots, f"/schemas/ids/{number}")
            imports: dict[str, str] = {}
            _collect(roots, found, imports)
            known[number] = Registered(str(found.get("schemaType") or "AVRO"), str(found["schema"]), imports)
        return known[number]

    return schema_of


def number_of(message: bytes) -> int:
    """The number of the schema of a message, from its first five bytes.

    Raises:
        UndecodableError: it does not begin with one.
    """
    if len(message) < 5 or message[0]:
        raise UndecodableError("no schema's number before the data")
    (number,) = struct.unpack(">i", message[1:5])
    return int(number)


def _collect(roots: list[str], found: Mapping[str, Any], imports: dict[str, str]) -> None:
    for one in found.get("references") or ():
        if one["name"] not in imports:
            subject = urllib.parse.quote(one["subject"], safe="")
            inner = _ask(roots, f"/subjects/{subject}/versions/{one['version']}")
            imports[one["name"]] = str(inner["schema"])
            _collect(roots, inner, imports)


def _ask(roots: list[str], path: str) -> Mapping[str, Any]:
    trouble: Exception | None = None
    for root in roots:
        try:
            with urllib.request.urlopen(root + path, timeout=_SECONDS) as answer:
                found = json.load(answer)
            if isinstance(found, dict) and isinstance(found.get("schema"), str):
                return found
            trouble = ValueError("an answer without a schema")
        except urllib.error.HTTPError as error:
            if error.code == 404 and _says_missing(error.read()):
                raise UndecodableError(f"the registry has no schema {path}") from None
            trouble = error
        except (urllib.error.URLError, ValueError) as error:
            trouble = error
    raise RefereeError(f"{path} cannot be had from the registry: {trouble}")


def _says_missing(body: bytes) -> bool:
    """Return whether it is the registry that says so: a 404 of another server tells nothing of a schema."""
    try:
        return json.loads(body).get("error_code") in (40401, 40402, 40403)
    except (ValueError, AttributeError):
        return False
