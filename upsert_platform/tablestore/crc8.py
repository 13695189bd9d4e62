"""The checksum of PlainBuffer (CRC-8, polynomial 0x07, initial value 0) over columns of values at once.

The checksum is linear: the state after a message is the state before it multiplied by x^(8 * length), plus the checksum
of the message alone. So the state after a constant prefix is computed once per column, and continued per row by table
look-ups. Multiplying by x^8 has period 127, which bounds the table of its powers.
"""

from __future__ import annotations

from typing import Final

import fastcrc
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_PERIOD: Final = 127


def _step_table() -> Bytes:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = ((state << 1) ^ 0x07) & 0xFF if state & 0x80 else state << 1
        table.append(state)
    return np.array(table, dtype=np.uint8)


STEP: Final = _step_table()
"""State and byte, added, to the next state."""


def _power_table() -> Bytes:
    powers = [np.arange(256, dtype=np.uint8)]
    for _ in range(_PERIOD - 1):
        powers.append(STEP[powers[-1]])
    return np.stack(powers)


_POWERS: Final = _power_table()


def checksum(message: bytes, state: int = 0) -> int:
    """The state after a message."""
    return int(fastcrc.crc8.smbus(message, state))


def checksums(messages: list[bytes | None]) -> Bytes:
    """The checksum of each message; 0 for None."""
    smbus = fastcrc.crc8.smbus
    return np.fromiter((smbus(message) if message else 0 for message in messages), np.uint8, len(messages))


def extend(state: Bytes | int, values: Bytes) -> Bytes:
    """States continued by rows of bytes.

    Args:
        state: before the bytes, for all rows or per row.
        values: rows x width.
    """
    width = values.shape[1]
    result = np.broadcast_to(_POWERS[width % _PERIOD][state], (len(values),)).copy()
    for position in range(width):
        result ^= _POWERS[(width - position) % _PERIOD].take(values[:, position])
    return result


def join(state: Bytes, lengths: npt.NDArray[np.int64], messages: Bytes) -> Bytes:
    """States continued by messages of which the lengths and the checksums are known."""
    return _POWERS.ravel().take((lengths % _PERIOD) * 256 + state) ^ messages
