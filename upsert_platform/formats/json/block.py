"""The bytes of a block of messages, read as words and cut into texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from upsert_platform.formats.json.layout import MOST_FIXED
from upsert_platform.formats.messages import Messages

_MOST_BYTES: Final = 1 << 30
_ROOM: Final = MOST_FIXED + 64
"""Bytes before and behind the messages, so that words at their ends can be read."""
_SPACE: Final = ord(" ")


@dataclass(slots=True)
class Block:
    """The bytes of messages.

    Attributes:
        data: with room before and behind; all places count from its start.
        words: of eight bytes, from each place on.
        bounds: where each message begins, and where the last one ends.
    """

    data: np.ndarray
    words: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, messages: Messages) -> Self | None:
        """The bytes, if they are UTF-8 and not too many."""
        array = messages.array
        if array.type != pa.binary():
            return None
        try:
            array.view(pa.string()).validate(full=True)
        except pa.ArrowInvalid:
            return None
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first > _MOST_BYTES or array.buffers()[2] is None:
            return None
        data = np.empty(last - first + 2 * _ROOM, np.uint8)
        data[:_ROOM] = data[-_ROOM:] = _SPACE
        data[_ROOM:-_ROOM] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
        words = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data.data, strides=(1,))
        return cls(data, words, offsets.astype(np.int64) - first + _ROOM)

    def texts(self, starts: np.ndarray, ends: np.ndarray) -> pa.StringArray:
        """The texts between places, which ascend."""
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1] if len(ends) else 0
        every = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(offsets), pa.py_buffer(self.data))
        return every.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))
