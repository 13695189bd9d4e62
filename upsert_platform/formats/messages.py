"""The messages of a block as a sequence of bytes, which stay in Arrow where nobody asks for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc


class Messages(Sequence[bytes]):
    """Messages in Arrow.

    Args:
        array: of binary values, none of them null.

    Attributes:
        array: the same.
    """

    __slots__ = ("_listed", "array")

    def __init__(self, array: pa.BinaryArray) -> None:
        self.array = array
        self._listed: list[bytes] | None = None

    @staticmethod
    def of(messages: Sequence[bytes]) -> Messages:
        """Messages that may be in a list."""
        if isinstance(messages, Messages):
            return messages
        made = Messages(pa.array(messages, pa.binary()))
        made._listed = messages if isinstance(messages, list) else list(messages)
        return made

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._list())

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Messages: ...
    def __getitem__(self, place: int | slice) -> bytes | Messages:
        if isinstance(place, int):
            return self._list()[place]
        start, stop, step = place.indices(len(self))
        if step != 1:
            return Messages.of(self._list()[place])
        part = Messages(self.array.slice(start, max(0, stop - start)))
        part._listed = None if self._listed is None else self._listed[place]
        return part

    def __contains__(self, message: object) -> bool:
        return bool(pc.any(pc.equal(self.array, pa.scalar(message, pa.binary())), min_count=0).as_py())

    def _list(self) -> list[bytes]:
        if self._listed is None:
            self._listed = self.array.to_pylist()
        return self._listed

    def take(self, places: pa.Array) -> Messages:
        """The messages at places."""
        return Messages(self.array.take(places))

    def joined(self, separator: bytes) -> pa.Buffer:
        """All of them, with a separator between."""
        if self._listed is not None:
            return pa.py_buffer(separator.join(self._listed))
        whole = pa.ListArray.from_arrays(pa.array([0, len(self)], pa.int32()), self.array)
        text = pc.binary_join(whole, pa.scalar(separator, pa.binary()))
        return text.buffers()[2].slice(0, text.total_values_length) if text.total_values_length else pa.py_buffer(b"")
