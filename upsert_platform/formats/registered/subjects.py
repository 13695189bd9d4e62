"""Under which subject a schema is registered, and with which schema rows are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from upsert_platform.core.errors import DeclarationError, EndpointError, Problem
from upsert_platform.formats.registered.options import RegistrySettings
from upsert_platform.formats.registered.registry import (
    BrokenSchemaError,
    Kind,
    RegisteredSchema,
    SchemaNotFoundError,
    SchemaRegistry,
)

Side = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of an encoder: one side of a topic, which may be unknown."""

    topic: str | None
    side: Side


def subject_of(settings: RegistrySettings, written: Destination, *, record: str) -> str:
    """The subject of a side, by the strategy that is declared for it.

    Args:
        record: full name of the record of the schema.

    Raises:
        DeclarationError: the topic is needed for it, and not known.
    """
    if settings.subject is not None:
        return settings.subject
    strategy = settings.key_strategy if written.side == "key" else settings.value_strategy
    if strategy == "RecordNameStrategy":
        return record
    if written.topic is None:
        text = (
            f"format '{settings.prefix}' needs a subject to register schemas under; set '{settings.prefix}.subject', or"
            " write to a single topic"
        )
        raise DeclarationError([Problem(text)])
    return f"{written.topic}-{record}" if strategy == "TopicRecordNameStrategy" else f"{written.topic}-{written.side}"


def written_schema(
    registry: SchemaRegistry, settings: RegistrySettings, subject: str, schema: str, *, kind: Kind
) -> tuple[int, RegisteredSchema]:
    """The schema that rows are written with, and its id.

    Args:
        schema: what is registered, or looked up; not used with the subject's newest schema.

    Raises:
        EndpointError: the registry did not answer, or refused; or the subject has no schema, or not this one, though
            none may be registered.
    """
    try:
        if settings.use_latest:
            return registry.latest(subject, kind=kind)
        own = RegisteredSchema(schema)
        if settings.auto_register:
            return registry.register(subject, schema, kind=kind), own
        return registry.lookup(subject, schema, kind=kind), own
    except BrokenSchemaError as error:
        raise EndpointError(f"subject '{subject}': {error}; register a schema there that can be read") from None
    except SchemaNotFoundError as error:
        name = (
            f"{settings.prefix}.properties.{'use.latest.version' if settings.use_latest else 'auto.register.schemas'}"
        )
        raise EndpointError(f"subject '{subject}': {error}; register a schema there, or change '{name}'") from None
