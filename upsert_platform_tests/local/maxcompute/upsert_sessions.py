"""Tables, rows and error codes of upsert sessions, by an unmodified PyODPS client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from odps.errors import ODPSError

Rows = Callable[..., list[tuple[Any, ...]]]


def create(odps: Any, name: str, columns: str = "k string not null, v string", **options: Any) -> Any:
    partition = options.pop("partition", None)
    properties = {"write.bucket.num": "4", **options.pop("properties", {})}
    return odps.create_table(
        name,
        (columns, partition) if partition else columns,
        transactional=True,
        primary_key=options.pop("key", "k"),
        table_properties=properties,
        **options,
    )


def upsert(session: Any, rows: Iterable[Iterable[Any]], *, delete: Iterable[Iterable[Any]] = (), **options: Any) -> Any:
    stream = session.open_upsert_stream(**options)
    for row in rows:
        stream.upsert(session.new_record(list(row)))
    for row in delete:
        stream.delete(session.new_record(list(row)))
    stream.close()
    return stream


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ODPSError) as caught:
        call()
    return str(caught.value.code)
