"""Where rows begin in packets that were put together here, and cut off anywhere."""

from __future__ import annotations

import random
import struct

import pymysql
import pytest

from upsert_platform.mysql.row_packets import _linked_heads, _row_starts

CONTENTS = {
    "text": lambda chosen, length: bytes(chosen.choices(range(32, 127), k=length)),
    "any bytes": lambda chosen, length: chosen.randbytes(length),
    "zeros": lambda _, length: bytes(length),
    "few zeros": lambda chosen, length: bytes(chosen.choices((0, 1, 4, 65), (1, 3, 3, 20), k=length)),
    "packets in values": lambda chosen, length: b"".join(
        struct.pack("<I", 20 | number % 256 << 24) + b"x" * 20 for number in range(length // 24 + 1)
    )[:length],
}
LENGTHS = {"short": (1, 40), "middling": (1, 600), "long": (200, 70_000), "of one length": (30, 30)}


def _answer(chosen: random.Random, content: str, lengths: str, size: int, number: int) -> tuple[bytes, list[int]]:
    """Packets of so many bytes or more, and where their rows begin; `number` is that of the first packet."""
    data, starts = bytearray(), []
    while len(data) < size:
        length = chosen.randint(*LENGTHS[lengths])
        row = b"\x09" + CONTENTS[content](chosen, length)
        starts.append(len(data) + 4)
        data += struct.pack("<I", len(row) | number << 24) + row
        number = (number + 1) % 256
    return bytes(data), starts


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("content", CONTENTS)
def test_starts_of_rows_wherever_an_answer_is_cut(content: str, lengths: str) -> None:
    chosen = random.Random(f"{content} {lengths}")
    for size in (100, 60_000, 200_000):
        data, starts = _answer(chosen, content, lengths, size, chosen.randrange(256))
        for cut in (len(data), *(chosen.randrange(len(data)) for _ in range(6)), starts[-1], starts[-1] - 2):
            whole = [
                at for at, following in zip(starts, [*starts[1:], len(data) + 4], strict=True) if following <= cut + 4
            ]
            found, behind, ended = _row_starts(data[:cut])
            assert found.tolist() == whole
            assert behind == (starts[len(whole)] - 4 if len(whole) < len(starts) else len(data))
            assert not ended


def test_rows_of_texts_are_found_at_once() -> None:
    """Else the test above would compare the way packet by packet with itself."""
    data, starts = _answer(random.Random(1), "text", "middling", 300_000, 7)
    heads, behind = _linked_heads(data)
    assert (heads + 4).tolist() == starts
    assert behind == len(data)


@pytest.mark.parametrize("size", [0, 500, 100_000])
def test_the_end_of_an_answer(size: int) -> None:
    data, starts = _answer(random.Random(size), "text", "middling", size, 0)
    number = len(starts) % 256 << 24
    end = struct.pack("<I", 5 | number) + b"\xfe\0\0\2\0"
    found, behind, ended = _row_starts(data + end)
    assert (found.tolist(), behind, ended) == (starts, len(data), True)
    told = b"\xff" + struct.pack("<H", 1317) + b"#70100Query execution was interrupted"
    with pytest.raises(pymysql.Error, match="interrupted"):
        _row_starts(data + struct.pack("<I", len(told) | number) + told)


def test_a_row_whose_first_value_is_long() -> None:
    """Its first byte is that of an end too; the length tells them apart."""
    data, starts = _answer(random.Random(3), "text", "middling", 100_000, 0)
    value = b"y" * 20_000
    row = b"\xfe" + struct.pack("<Q", len(value)) + value
    number = len(starts) % 256
    long = struct.pack("<I", len(row) | number << 24) + row
    more, behind_it = _answer(random.Random(4), "text", "middling", 1000, (number + 1) % 256)
    found, behind, ended = _row_starts(data + long + more)
    shifted = [at + len(data) + len(long) for at in behind_it]
    assert found.tolist() == [*starts, len(data) + 4, *shifted]
    assert (behind, ended) == (len(data) + len(long) + len(more), False)
