"""Changes with the row before and the row after, as Flink CDC's pipelines write them to a topic.

Other than a table of Flink SQL (`encoder`), which knows no updates, a pipeline writes one message per update, and every
message names its table: `debezium-json` in ``source``, `canal-json` in ``database``, ``table`` and ``pkNames``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.base import Columns
from upsert_platform.formats.change.options import ChangeSettings
from upsert_platform.formats.fragments import Refusals, drop_refused, without_bad_times
from upsert_platform.formats.json.encoder import json_objects
from upsert_platform.formats.json.text import quote_for_bytes

_INSERT, _UPDATE, _DELETE = range(3)
_DEBEZIUM: Final = ("c", "u", "d")
_CANAL: Final = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class TableId:
    """The table that messages name.

    Attributes:
        schema: None where the table's name has one part.
        key: names of its primary key.
    """

    schema: str | None
    table: str
    key: tuple[str, ...]

    @classmethod
    def parse(cls, name: str, key: Sequence[str]) -> TableId:
        """Reads ``table``, ``schema.table`` or ``namespace.schema.table``; messages do not name the namespace."""
        parts = name.split(".", 2)
        return cls(parts[-2] if len(parts) > 1 else None, parts[-1], tuple(key))


class ImagesEncoder:
    """Encodes changes given by their two images.

    Args:
        format_id: ``debezium-json`` or ``canal-json``.
    """

    def __init__(self, format_id: str, columns: Columns, settings: ChangeSettings, table: TableId) -> None:
        self._columns = list(columns)
        self._settings = settings.json_settings()
        self._short = settings.encode_ignore_null_fields
        self._table = table
        self._framed: Callable[[pa.Array, pa.Array, pa.Array], pa.Array]
        self._framed = self._debezium if format_id == "debezium-json" else self._canal

    def encode(
        self, before: pa.RecordBatch, after: pa.RecordBatch, *, was: np.ndarray, remains: np.ndarray
    ) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        Args:
            before: the columns as they were; looked at where `was`.
            after: the columns as they are; looked at where `remains`.
            was: which rows have an image before.
            remains: which rows have an image after. A row has one of the two, or both.
        """
        refusals: Refusals = {}
        old, new = self._texts(before, was, refusals), self._texts(after, remains, refusals)
        operations = pa.array(np.where(remains, np.where(was, _UPDATE, _INSERT), _DELETE))
        return drop_refused(self._framed(old, new, operations).view(pa.binary()), refusals), refusals

    def _texts(self, rows: pa.RecordBatch, there: np.ndarray, refusals: Refusals) -> pa.Array:
        """JSON objects, null where a row has no such image."""
        places = np.flatnonzero(there)
        whole = len(places) == len(there)
        chosen = rows if whole else rows.take(pa.array(places))
        found: Refusals = {}
        names, kinds = [name for name, _ in self._columns], [kind for _, kind in self._columns]
        arrays = without_bad_times(chosen.columns, self._columns, found)
        texts = json_objects(arrays, names, kinds, self._settings, found)
        for at, reason in found.items():
            refusals.setdefault(int(places[at]), reason)
        if whole:
            return texts
        origin = np.full(len(there), -1)
        origin[places] = np.arange(len(places))
        return texts.take(pa.array(origin, mask=origin < 0))

    def _debezium(self, old: pa.Array, new: pa.Array, operations: pa.Array) -> pa.Array:
        names = [*self._name("db", self._table.schema), f'"table":{quote_for_bytes(self._table.table)}']
        tail = f'","source":{{{",".join(names)}}}}}'
        return _joined(
            "{", self._member("before", old), self._member("after", new), '"op":"', _word(_DEBEZIUM, operations), tail
        )

    def _canal(self, old: pa.Array, new: pa.Array, operations: pa.Array) -> pa.Array:
        replaced = pc.if_else(pc.equal(operations, _UPDATE), _joined("[", old, "]"), pa.scalar(None, pa.string()))
        names = [*self._name("database", self._table.schema), f'"table":{quote_for_bytes(self._table.table)}']
        key = ",".join(quote_for_bytes(name) for name in self._table.key)
        tail = f'",{",".join(names)},"pkNames":[{key}]}}'
        data = pc.coalesce(new, old)
        return _joined(
            "{", self._member("old", replaced), '"data":[', data, '],"type":"', _word(_CANAL, operations), tail
        )

    def _member(self, name: str, texts: pa.Array) -> pa.Array:
        """A member and the comma behind it; nothing of a null where nulls are left out."""
        if not self._short:
            return _joined(f'"{name}":', pc.fill_null(texts, "null"), ",")
        return pc.fill_null(_joined(f'"{name}":', texts, ","), "")

    def _name(self, member: str, text: str | None) -> list[str]:
        if text is None:
            return [] if self._short else [f'"{member}":null']
        return [f'"{member}":{quote_for_bytes(text)}']


def _word(words: Sequence[str], operations: pa.Array) -> pa.Array:
    return pa.array(words).take(operations)


def _joined(*pieces: pa.Array | str) -> pa.Array:
    """Pieces put together; null where one is."""
    parts = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*parts, "")
