"""Whole numbers and names as the protocol packs them."""

from __future__ import annotations

from upsert_platform.core.errors import ReplicationError


class Reader:
    """Reads an event's body from front to back.

    Args:
        place: what is read, for messages.
    """

    def __init__(self, data: bytes, place: str, at: int = 0) -> None:
        self.data = data
        self.place = place
        self.at = at

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        """The next bytes.

        Raises:
            ReplicationError: there are fewer.
        """
        if count > self.left:
            raise ReplicationError(f"{self.place}: it ends {count - self.left} bytes too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, width: int) -> int:
        """An unsigned little-endian number of `width` bytes."""
        return int.from_bytes(self.take(width), "little")

    def packed(self) -> int:
        """A length-encoded integer: one byte up to 250, or 252, 253, 254 and 2, 3, 8 bytes."""
        first = self.number(1)
        if first < 251:
            return first
        if first not in (252, 253, 254):
            raise ReplicationError(f"{self.place}: a length begins with {first}, which no length does")
        return self.number({252: 2, 253: 3, 254: 8}[first])

    def text(self) -> str:
        """A name with its length before it."""
        return self.take(self.packed()).decode("utf-8", "backslashreplace")
