"""Change data, write side: every row becomes an insert or a delete, as Flink writes them (never an update)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.base import Columns
from upsert_platform.formats.change.options import ChangeSettings
from upsert_platform.formats.fragments import Refusals, drop_refused, without_bad_times
from upsert_platform.formats.json.encoder import json_objects

_DELETES: Final = ("-U", "-D")


@dataclass(frozen=True, slots=True)
class Frame:
    """Text around a row: of an insert and of a delete, with and without null fields."""

    insert: tuple[str, str]
    delete: tuple[str, str]
    short_insert: tuple[str, str]
    short_delete: tuple[str, str]


def _images(operation: str, insert: str, delete: str) -> Frame:
    return Frame(
        ('{"before":null,"after":', f',"{operation}":"{insert}"}}'),
        ('{"before":', f',"after":null,"{operation}":"{delete}"}}'),
        ('{"after":', f',"{operation}":"{insert}"}}'),
        ('{"before":', f',"{operation}":"{delete}"}}'),
    )


def _typed(head: str, tail: str, insert: str, delete: str) -> Frame:
    put, remove = (head, f'{tail},"type":"{insert}"}}'), (head, f'{tail},"type":"{delete}"}}')
    return Frame(put, remove, put, remove)


FRAMES: Final[Mapping[str, Frame]] = {
    "debezium-json": _images("op", "c", "d"),
    "ogg-json": _images("op_type", "I", "D"),
    "canal-json": _typed('{"data":[', "]", "INSERT", "DELETE"),
    "maxwell-json": _typed('{"data":', "", "insert", "delete"),
}


class ChangeEncoder:
    """Encodes rows with kinds into change data messages."""

    def __init__(self, columns: Columns, settings: ChangeSettings, frame: Frame) -> None:
        self._columns = list(columns)
        self._settings = settings.json_settings()
        short = settings.encode_ignore_null_fields
        self._insert = frame.short_insert if short else frame.insert
        self._delete = frame.short_delete if short else frame.delete

    def encode(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        Args:
            kinds: for each row ``+I``, ``-U``, ``+U`` or ``-D``; all ``+I`` if None.
        """
        refusals: Refusals = {}
        names, types = [name for name, _ in self._columns], [logical for _, logical in self._columns]
        arrays = without_bad_times(rows.columns, self._columns, refusals)
        text = json_objects(arrays, names, types, self._settings, refusals)
        messages = _framed(text, self._insert)
        if kinds is not None:
            deletes = pc.is_in(kinds, pa.array(_DELETES))
            messages = pc.if_else(deletes, _framed(text, self._delete), messages)
        return drop_refused(messages.view(pa.binary()), refusals), refusals


def _framed(text: pa.Array, frame: tuple[str, str]) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(frame[0]), text, pa.scalar(frame[1]), "")
