"""Change data with the new row and the old values: formats ``canal-json`` and ``maxwell-json``, read side.

An old value of null is a null; a column that the old values do not name had the value of the new row. Which columns are
named is asked of each row's own old values. (Flink asks it of all rows of a message together.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import SMALLEST_BLOCK, UNREADABLE, reason_of
from upsert_platform.formats.change.decoder import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from upsert_platform.formats.change.list_bulk import BulkChanges, ChangeListBulk
from upsert_platform.formats.change.metadata import MetadataPlan
from upsert_platform.formats.change.options import CanalJsonSettings, ChangeSettings
from upsert_platform.formats.columns import batch_of, schema_of
from upsert_platform.formats.json.decoder import json_manner
from upsert_platform.formats.json.tree import FloatText, Tree, parse_tree
from upsert_platform.formats.json.values import FieldError, JsonManner, convert_row, describe, number_text

Change = tuple[str, list[Any]]
_PATIENCE: Final = 512
"""Messages read one by one after which a block is no longer split to find some for the bulk way."""
_NO_OLD: Final = "field old: an update needs the old values"


class OldValuesDecoder:
    """Decodes Canal's messages (lists of rows) and Maxwell's (one row); gives rows with kinds."""

    def __init__(self, columns: Columns, settings: ChangeSettings, metadata: MetadataPlan) -> None:
        self._metadata = metadata
        self._schema = schema_of([*columns, *metadata.columns])
        needed = metadata.needed(root=False)
        self._physical = schema_of(columns)
        self._fields = schema_of(needed)
        self._manner: JsonManner = json_manner(settings.json_settings(), [*columns, *needed])
        self._names = [name for name, _ in columns]
        self._row = convert_row(self._names, [logical for _, logical in columns], self._manner)
        self._extra = convert_row([name for name, _ in needed], [logical for _, logical in needed], self._manner)
        self._changes: Callable[[dict[str, Tree]], list[Change]] = self._maxwell
        self._filters: list[tuple[str, re.Pattern[str]]] = []
        canal = isinstance(settings, CanalJsonSettings)
        if isinstance(settings, CanalJsonSettings):
            self._changes = self._canal
            patterns = {"database": settings.database_include, "table": settings.table_include}
            self._filters = [(name, re.compile(text)) for name, text in patterns.items() if text is not None]
        words = ("INSERT", "UPDATE", "DELETE") if canal else ("insert", "update", "delete")
        self._bulk: ChangeListBulk | None = None
        if not self._filters:
            self._bulk = ChangeListBulk(columns, self._manner, listed=canal, kinds=words, extra=needed)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`.

        An empty message, one that the filters pass over, and Canal's CREATE give no row.
        """
        present = [place for place, message in enumerate(messages) if message]
        texts = [messages[place] for place in present]
        read = self._bulk.for_block(texts) if self._bulk is not None else None
        if read is None:
            return self._one_by_one(messages, present)
        parts: list[Decoded] = []
        rest: list[int] = []
        pending = [(0, len(texts))]
        while pending:
            start, end = pending.pop()
            found = read(texts[start:end]) if start < end else None
            if found is not None:
                parts.append(self._quick(found, np.asarray(present[start:end], np.int32)))
                rest += np.delete(np.asarray(present[start:end]), found.handled).tolist()
            elif end - start > SMALLEST_BLOCK and len(rest) < _PATIENCE:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
            else:
                rest += present[start:end]
        if rest:
            parts.append(self._one_by_one(messages, rest))
        return parts[0] if len(parts) == 1 else _merged(parts)

    def _quick(self, found: BulkChanges, places: np.ndarray) -> Decoded:
        return self._decoded(found.columns, found.extra, places[found.message], {}, found.kinds)

    def _decoded(
        self,
        columns: Sequence[pa.Array],
        extra: Mapping[str, pa.Array],
        sources: np.ndarray,
        errors: dict[int, str],
        kinds: pa.Array,
    ) -> Decoded:
        metadata, refused = self._metadata.held(extra)
        batch = pa.RecordBatch.from_arrays([*columns, *metadata], schema=self._schema)
        places = pa.array(sources, pa.int32())
        if not refused:
            return Decoded(batch, places, errors, kinds)
        told = {int(sources[at]): reason for at, reason in refused.items()}
        kept = pa.array(~np.isin(sources, list(told)))
        return Decoded(batch.filter(kept), places.filter(kept), errors | told, kinds.filter(kept))

    def _one_by_one(self, messages: Sequence[bytes], places: Sequence[int]) -> Decoded:
        rows: list[list[Any]] = []
        extras: list[list[Any]] = []
        kinds: list[str] = []
        sources: list[int] = []
        errors: dict[int, str] = {}
        for place in places:
            try:
                tree = parse_tree(messages[place])
                changes, extra = self._read(tree)
            except UNREADABLE as error:
                errors[place] = reason_of(error)
                continue
            for kind, row in changes:
                kinds.append(kind)
                rows.append(row)
                extras.append(extra)
                sources.append(place)
        physical = batch_of(self._physical, rows).columns
        fields = batch_of(self._fields, extras) if len(self._fields) else None
        read = dict(zip(fields.schema.names, fields.columns, strict=True)) if fields is not None else {}
        return self._decoded(physical, read, np.array(sources, np.int32), errors, pa.array(kinds, pa.string()))

    def _read(self, tree: Tree) -> tuple[list[Change], list[Any]]:
        if type(tree) is not tuple:
            raise FieldError(f"an object expected, not {describe(tree)}")
        members = dict(tree)
        for name, pattern in self._filters:
            if name not in members:
                raise FieldError(f"missing field {name}, which '{name}.include' asks for")
            if pattern.fullmatch(self._text(members[name])) is None:
                return [], []
        changes = self._changes(members)
        return changes, self._extra(tree) if len(self._fields) else []

    def _text(self, tree: Tree) -> str:
        if type(tree) is FloatText:
            return number_text(tree, self._manner)
        return str(tree) if isinstance(tree, str) else {True: "true", False: "false", None: "null"}.get(tree, "")

    def _canal(self, members: dict[str, Tree]) -> list[Change]:
        kind = members.get("type")
        if kind == "CREATE":
            return []
        if kind not in ("INSERT", "UPDATE", "DELETE"):
            raise FieldError(f"field type: {kind!r} is not an operation that changes rows")
        data = self._list(members, "data")
        if kind != "UPDATE":
            return [(INSERT if kind == "INSERT" else DELETE, self._row(item)) for item in data]
        if members.get("old") is None:
            raise FieldError(_NO_OLD)
        old = self._list(members, "old")
        if len(old) < len(data):
            raise FieldError(f"field old: {len(old)} old values for {len(data)} rows")
        return [change for new, was in zip(data, old, strict=False) for change in self._update(new, was)]

    def _list(self, members: dict[str, Tree], name: str) -> list[Tree]:
        found = members.get(name)
        if type(found) is not list:
            raise FieldError(f"field {name}: an array expected, not {describe(found)}")
        return found

    def _maxwell(self, members: dict[str, Tree]) -> list[Change]:
        kind, data = members.get("type"), members.get("data")
        if kind not in ("insert", "update", "delete"):
            raise FieldError(f"field type: {kind!r} is not an operation that changes rows")
        if kind != "update":
            return [(INSERT if kind == "insert" else DELETE, self._row(data))]
        if members.get("old") is None:
            raise FieldError(_NO_OLD)
        return self._update(data, members["old"])

    def _update(self, new: Tree, old: Tree) -> list[Change]:
        after = self._row(new)
        before = self._row(old)
        named = {name for name, _ in old}
        for place, name in enumerate(self._names):
            if name not in named:
                before[place] = after[place]
        return [(UPDATE_BEFORE, before), (UPDATE_AFTER, after)]


def _merged(parts: Sequence[Decoded]) -> Decoded:
    """Parts of one block, put into the order of messages."""
    message = pa.concat_arrays([part.message for part in parts])
    order = pa.array(np.argsort(message.to_numpy(), kind="stable"))
    kinds = pa.concat_arrays([part.kinds for part in parts]).take(order)
    batches = pa.Table.from_batches([part.rows for part in parts]).combine_chunks().to_batches()
    rows = batches[0].take(order) if batches else parts[0].rows
    errors = {place: reason for part in parts for place, reason in part.errors.items()}
    return Decoded(rows, message.take(order), errors, kinds)
