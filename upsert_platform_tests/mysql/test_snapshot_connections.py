"""A task reads chunks by two connections, or by one where the server gives no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql import row_packets, snapshot


class _Part:
    """A part without columns."""

    class settings:  # noqa: N801 - an attribute of the part
        server = "server"

    class table:  # noqa: N801
        columns = ()

    class found:  # noqa: N801
        columns = ()
        full_name = schema = name = "t"


@pytest.mark.parametrize(("room", "chunks", "used"), [(2, 3, 2), (1, 3, 1), (2, 1, 1), (9, 9, 2)])
def test_chunks_are_read_by_as_many_connections_as_there_are(
    monkeypatch: pytest.MonkeyPatch, room: int, chunks: int, used: int
) -> None:
    opened: list[Any] = []

    class Limited:
        def __init__(self, server: object) -> None:
            if len(opened) == room:
                raise EndpointError("too many connections")
            opened.append(self)
            self.asked: list[str] = []

        def __enter__(self) -> Limited:
            return self

        def __exit__(self, *error: object) -> None:
            self.asked.append("closed")

        def query(self, text: str) -> None:
            self.asked.append(text)

    def read_rows(connections: list[Any], statements: Iterator[str], readers: object) -> Iterator[int]:
        assert connections == opened
        yield len(list(statements))

    monkeypatch.setattr(snapshot, "Connection", Limited)
    monkeypatch.setattr(row_packets, "read_rows", read_rows)
    monkeypatch.setattr(snapshot, "condition", lambda found, chunk: "")
    monkeypatch.setattr(snapshot, "table_name", lambda found: "t")
    part: Any = _Part()
    assert list(snapshot.selected_rows(part, [object()] * chunks)) == [chunks]  # type: ignore[list-item]
    assert len(opened) == used
    assert all(len(item.asked) == 2 and item.asked[-1] == "closed" for item in opened)


def test_without_any_connection_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(server: object) -> None:
        raise EndpointError("access denied")

    monkeypatch.setattr(snapshot, "Connection", refused)
    part: Any = _Part()
    with pytest.raises(EndpointError, match="access denied"):
        list(snapshot.selected_rows(part, [object()] * 3))  # type: ignore[list-item]
