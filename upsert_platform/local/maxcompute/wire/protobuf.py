"""The few protobuf primitives that records use."""

from __future__ import annotations

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """A non-negative number, seven bits per byte, lowest first."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed number of up to 64 bits."""
    return varint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


class TruncatedError(ValueError):
    """The body ends inside of a value."""


class Reader:
    """Reads primitives from a body, front to back."""

    __slots__ = ("body", "position")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.position = 0

    @property
    def done(self) -> bool:
        return self.position >= len(self.body)

    def varint(self) -> int:
        body, position = self.body, self.position
        try:
            result = body[position]
            if result < 128:
                self.position = position + 1
                return result
            result = shift = 0
            while True:
                byte = body[position]
                position += 1
                result |= (byte & 127) << shift
                if byte < 128:
                    self.position = position
                    return result
                shift += 7
        except IndexError as error:
            raise TruncatedError("the body ends inside of a number") from error

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self.body):
            raise TruncatedError(f"the body ends {end - len(self.body)} bytes too early")
        found = self.body[self.position : end]
        self.position = end
        return found

    def delimited(self) -> bytes:
        return self.take(self.varint())
