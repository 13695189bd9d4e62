"""Messages in Arrow behave as the list of their bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.formats.messages import Messages

TEXTS = st.lists(st.binary(max_size=4), max_size=8)


@given(TEXTS, st.integers(-10, 10) | st.none(), st.integers(-10, 10) | st.none(), st.sampled_from([None, 1, 2, -1]))
def test_parts_are_those_of_the_list(texts: list[bytes], start: int | None, stop: int | None, step: int | None) -> None:
    cut = slice(start, stop, step)
    for messages in (Messages(pa.array([b"before", *texts], pa.binary()).slice(1)), Messages.of(texts)):
        assert list(messages[cut]) == texts[cut]
        assert [messages[place] for place in range(-len(texts), len(texts))] == texts + texts
        assert list(messages[cut]) == texts[cut]  # when its list is made already
        assert (len(messages), bool(messages)) == (len(texts), bool(texts))


@given(TEXTS, st.binary(max_size=2))
def test_they_are_joined_and_looked_through(texts: list[bytes], one: bytes) -> None:
    messages = Messages(pa.array([b"", *texts], pa.binary()).slice(1))
    assert messages.joined(one) == Messages.of(texts).joined(one) == one.join(texts)
    assert (one in messages) == (one in texts)
    places = pa.array(range(0, len(texts), 2), pa.int64())
    assert list(messages.take(places)) == texts[::2]
    assert Messages.of(messages) is messages
