"""The decoder of one side of a topic, from plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.referee.avro_values import avro_decoder, registered_decoder
from upsert_platform.referee.csv_values import csv_decoder
from upsert_platform.referee.errors import RefereeError
from upsert_platform.referee.json_values import json_decoder, json_registry_decoder
from upsert_platform.referee.kinds import Kind, kind_of
from upsert_platform.referee.proto_values import proto_registry_decoder
from upsert_platform.referee.raw_values import raw_decoder

Decoder = Callable[[bytes], list[Any]]
_DECODERS = {
    "json": json_decoder,
    "csv": csv_decoder,
    "raw": raw_decoder,
    "avro": avro_decoder,
    "avro-confluent": registered_decoder,
    "json-registry": json_registry_decoder,
    "proto-registry": proto_registry_decoder,
}


@dataclass(frozen=True)
class Side:
    """The keys or the values of a topic.

    Attributes:
        format: ``json``, ``csv``, ``raw``, ``avro``, ``avro-confluent``, ``json-registry`` or ``proto-registry``.
        columns: names in the message to types, in order.
        names: the same columns as the table calls them.
        options: of the format, such as ``json.fail-on-missing-field``.
    """

    format: str
    columns: Mapping[str, str]
    names: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Names in the table to types."""
        return {name: kind_of(text) for name, text in zip(self.names, self.columns.values(), strict=True)}

    def decoder(self) -> Decoder:
        """A function from bytes to the values of the columns, in order.

        Raises:
            RefereeError: the format, or one of its options, is beyond the referee.
        """
        kinds = {name: kind_of(text) for name, text in self.columns.items()}
        if self.format not in _DECODERS:
            raise RefereeError(f"format '{self.format}' is beyond the referee, which reads {', '.join(_DECODERS)}")
        return _DECODERS[self.format](kinds, self.options)
