"""The protocol of a message format: bytes to rows in bulk, rows to bytes in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from upsert_platform.core.types import LogicalType

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Sequence[tuple[str, LogicalType]]
"""Names and types of one side's columns, in declared order."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result of decoding a block of messages.

    Attributes:
        rows: one Arrow column per declared column, in order, of `upsert_platform.core.types.arrow_type`.
        message: for each row, the index of its message in the block, ascending (int32 array). A message may give
            several rows (a JSON array) or none.
        errors: index of message to reason, for messages that cannot be decoded; they have no rows.
        kinds: for each row its kind (``+I``, ``-U``, ``+U``, ``-D``), of formats that carry changes; None of others,
            whose rows are all inserts.
    """

    rows: pa.RecordBatch
    message: pa.Array
    errors: dict[int, str]
    kinds: pa.Array | None = None


class Decoder(Protocol):
    """Decodes messages of one side (key or value) of a topic. Built once per task; keeps no state between blocks."""

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block. No message is None: null values are tombstones and never reach a format."""


class Encoder(Protocol):
    """Encodes rows of one side of a topic, byte for byte as Flink does."""

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Encodes a block.

        Returns:
            A binary array, one message per row (null where the format yields none), and the reasons of rows that
            cannot be encoded, by index (their message is null).
        """
