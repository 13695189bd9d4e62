"""Messages behind a zero byte and the four bytes of a schema's id: each is read by the schema of its writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from upsert_platform.formats.base import Columns, Decoded, Decoder
from upsert_platform.formats.columns import join, schema_of
from upsert_platform.formats.registered.registry import SchemaNotFoundError

HEADER: Final = 5
"""Bytes before the data: the magic byte 0 and the id, big-endian."""
_MOST_DECODERS: Final = 10_000
"""Schemas, and messages of proto files, that are remembered."""
_LONGEST_REASON: Final = 1_000


def frame(schema_id: int) -> bytes:
    """Return the prefix of messages with a schema id."""
    return b"\0" + schema_id.to_bytes(4, "big", signed=True)


class FramedDecoder:
    """Decodes messages of any number of writers' schemas; each is asked for once.

    Args:
        make: the decoder of what is behind the frame, given the schema's id and the bytes of the frame behind it.
            ValueError: its messages cannot be read.
        data_at: where the data of a message begins, if not right behind the id. ValueError: the frame is broken.
    """

    def __init__(
        self, columns: Columns, make: Callable[[int, bytes], Decoder], *, data_at: Callable[[bytes], int] | None = None
    ) -> None:
        self._schema = schema_of(columns)
        self._make = make
        self._data_at = data_at
        self._decoders: dict[bytes, Decoder | str] = {}

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`.

        Raises:
            EndpointError: the registry did not answer; the messages are neither decoded nor refused then.
        """
        errors: dict[int, str] = {}
        groups: dict[bytes, list[int]] = {}
        start, data_at = HEADER, self._data_at
        for place, message in enumerate(messages):
            if message[:1] != b"\0" or len(message) < HEADER:
                errors[place] = "not framed by a schema registry: a zero byte and a schema id expected first"
                continue
            if data_at is not None:
                try:
                    start = data_at(message)
                except ValueError as error:
                    errors[place] = str(error)
                    continue
            groups.setdefault(message[1:start], []).append(place)
        parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        for head, places in groups.items():
            decoder = self._decoder(head)
            if isinstance(decoder, str):
                errors.update(dict.fromkeys(places, decoder))
                continue
            start = len(head) + 1
            found = decoder.decode([messages[place][start:] for place in places])
            parts.append((found.rows, pa.array(places, pa.int32()).take(found.message)))
            errors.update({places[at]: reason for at, reason in found.errors.items()})
        return join(self._schema, parts, errors)

    def _decoder(self, head: bytes) -> Decoder | str:
        if head not in self._decoders:
            schema_id = int.from_bytes(head[:4], "big", signed=True)
            try:
                decoder: Decoder | str = self._make(schema_id, head[4:])
            except SchemaNotFoundError as error:  # it may be there the next time
                return _reason(schema_id, error)
            except ValueError as error:
                decoder = _reason(schema_id, error)
            if len(self._decoders) >= _MOST_DECODERS:
                self._decoders.clear()
            self._decoders[head] = decoder
        return self._decoders[head]


def _reason(schema_id: int, error: ValueError) -> str:
    """Return a brief reason for which messages of a schema are quarantined; each of them stores it."""
    return f"schema id {schema_id}: {error}"[:_LONGEST_REASON]
