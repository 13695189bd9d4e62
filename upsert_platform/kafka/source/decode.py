"""Records to changelog rows, in bulk: formats decode key and value, Arrow checks that they agree.

Runs in Spark workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog import rows
from upsert_platform.changelog.declared_values import declared_values, is_cut
from upsert_platform.core.model import ColumnKind
from upsert_platform.formats import Decoded, build_decoder
from upsert_platform.formats.messages import Messages
from upsert_platform.kafka.modes import KeyConflict
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.source.fitting_format import SAMPLE, fitting_format
from upsert_platform.kafka.source.record_columns import (
    header_rows,
    metadata_column,
    needs_record,
    objects_of,
    place_columns,
    unheld_times,
)
from upsert_platform.kafka.source.records import RecordBlock
from upsert_platform.kafka.source.reduce import Verdicts
from upsert_platform.kafka.table import FormatSide, KafkaTable

RULE_NO_ROW: Final = "value without rows"
RULE_NO_KEY_ROW: Final = "key without rows"
RULE_NULL_VALUE: Final = "null value"
DIFFERENT_COPY: Final = "the value's column '{name}' differs from the key's (key-conflict = quarantine)"
UNREAD_COPY: Final = (
    "the value has no column '{name}', which is in the key, or one that could not be read (ignore-parse-errors makes"
    " null of both; key-conflict = quarantine; where values never have it, set value.fields-include = EXCEPT_KEY)"
)


_TELLING_VALUES: Final = 3
"""Refused values of a block from which on another format is looked for."""


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """Changelog rows of a block of records.

    Attributes:
        batch: rows in the order of the records, in `schema`.
        verdicts: the records that gave no rows.
        tombstones: records without a value among those that gave rows.
    """

    batch: pa.RecordBatch
    verdicts: Verdicts
    tombstones: int


def changes_schema(table: KafkaTable) -> pa.Schema:
    """Schema of the batches that a reading task yields: the changelog's without `_batch`, which the driver adds."""
    schema = rows.arrow_schema(table.table)
    return schema.remove(schema.get_field_index(rows.BATCH))


class RecordDecoder:
    """Decodes records of one table.

    Args:
        keyed: whether the key identifies a row, so that records without one, and rows with a null in the primary key,
            are refused. False for plain `kafka` tables.
    """

    def __init__(self, table: KafkaTable) -> None:
        self.schema = changes_schema(table)
        self._table = table
        self._keyed = table.is_upsert
        settings = table.settings
        prefers_key = isinstance(settings, UpsertKafkaSettings) and settings.key_conflict is KeyConflict.KEY
        self._check_agreement = self._keyed and not prefers_key
        ignored = table.value.options.get(f"{table.value.format}.ignore-parse-errors", "false")
        self._trusts_null = ignored.strip().lower() in ("false", "no")
        key, value = table.key, table.value
        self._key = build_decoder(key.format, key.format_columns, key.options) if key is not None else None
        extra = [(name, kind) for _, name, kind in value.metadata]
        self._value = build_decoder(value.format, value.format_columns, value.options, metadata=extra)
        self._key_index = {name: index for index, name in enumerate(key.names)} if key is not None else {}
        carried = [*value.names, *(name for name, _, _ in value.metadata)]
        self._value_index = {name: index for index, name in enumerate(carried)}
        self._cut = {column.name: column.type for column in table.table.columns if column.type and is_cut(column.type)}
        # As in Flink, null is a value like any other to the raw format; other formats have no row for it.
        self._skips_null = not self._keyed and value.format != "raw"
        self._upsert_kind = rows.KIND_UPDATE_AFTER if self._keyed else rows.KIND_INSERT

    @property
    def needs_records(self) -> bool:
        """Return whether blocks must hold the client's records, for metadata columns."""
        return any(
            needs_record(column) for column in self._table.metadata_columns if column.name not in self._value_index
        )

    def decode(self, block: RecordBlock) -> DecodedBlock:
        """Decodes records; where the table is keyed, all of them have a key."""
        verdicts = Verdicts()
        live, values = _present(block.values)
        key = self._decode_keys(block.keys, verdicts)
        value = self._value.decode(values)
        hint = self._hint("value", self._table.value, values, value)
        for index, reason in value.errors.items():
            verdicts.refused.setdefault(int(live[index]), f"value: {reason}{hint}")
        if b"" in values:
            self._refuse_empty(values, live, value, verdicts)
        joined = self._join(len(block), live, key, value, verdicts)
        columns = self._declared_columns(block, joined, key, value, verdicts)
        kinds = None if value.kinds is None else self._picked_kinds(value.kinds, joined)
        return self._assemble(block, joined, columns, kinds, verdicts)

    def _refuse_empty(self, values: Messages, live: np.ndarray, value: Decoded, verdicts: Verdicts) -> None:
        """A value of zero bytes that gives no row is broken, neither a tombstone nor a value without rows."""
        with_rows = set(value.message.to_pylist())
        for index, text in enumerate(values):
            if not text and index not in with_rows:
                verdicts.refused.setdefault(int(live[index]), "value: it has zero bytes (a delete has a null value)")

    def _decode_keys(self, keys: pa.Array, verdicts: Verdicts) -> Decoded | None:
        if self._key is None:
            return None
        places, present = _present(keys)
        decoded = self._key.decode(present)
        assert self._table.key is not None
        hint = self._hint("key", self._table.key, present, decoded)
        for index, reason in decoded.errors.items():
            verdicts.refused[int(places[index])] = f"key: {reason}{hint}"
        if len(places) == len(keys):
            return decoded
        return Decoded(decoded.rows, pa.array(places[decoded.message.to_numpy()], pa.int32()), decoded.errors)

    def _hint(self, side: Literal["key", "value"], declared: FormatSide, given: Messages, decoded: Decoded) -> str:
        """Return which format would read messages of which the declared one reads none; few of them say nothing about
        values.
        """
        if not decoded.errors or len(decoded.errors) < max(len(given), 1 if side == "key" else _TELLING_VALUES):
            return ""
        found = fitting_format(side, declared, given[:SAMPLE])
        return f"; {found}" if found else ""

    def _join(self, count: int, live: np.ndarray, key: Decoded | None, value: Decoded, verdicts: Verdicts) -> _Joined:
        """Pairs every value row of a record with every key row of it (Flink's order: value by value)."""
        value_of = live[value.message.to_numpy()] if len(live) else np.empty(0, np.int64)
        key_of = np.arange(count) if key is None else key.message.to_numpy().astype(np.int64)
        if (
            not verdicts.refused
            and len(value_of) == len(key_of) == count
            and (count == 0 or (np.array_equal(value_of, np.arange(count)) and np.array_equal(key_of, value_of)))
        ):
            return _Joined(np.arange(count), None, None)
        values_per_record = np.bincount(value_of, minlength=count)
        keys_per_record = np.bincount(key_of, minlength=count)
        if key is not None and not self._keyed:  # a null key is legal where it identifies nothing
            keys_per_record = np.maximum(keys_per_record, 1)
        tombstone = np.ones(count, bool)
        tombstone[live] = False
        self._judge_empty(values_per_record, keys_per_record, tombstone, verdicts)
        good = np.ones(count, bool)
        good[list({*verdicts.refused, *verdicts.skipped})] = False
        items_of = np.concatenate([value_of, np.flatnonzero(tombstone)])
        item_value = np.concatenate([np.arange(len(value_of)), np.full(int(tombstone.sum()), -1)])
        order = np.argsort(items_of, kind="stable")
        items_of, item_value = items_of[order], item_value[order]
        chosen = good[items_of]
        items_of, item_value = items_of[chosen], item_value[chosen]
        repeats = keys_per_record[items_of]
        record = np.repeat(items_of, repeats)
        value_row = np.repeat(item_value, repeats)
        within = np.arange(len(record)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        found_keys = np.bincount(key_of, minlength=count)
        key_row = (np.cumsum(found_keys) - found_keys)[record] + within
        key_row[found_keys[record] == 0] = -1
        return _Joined(record, key_row, value_row)

    def _judge_empty(
        self, values_per_record: np.ndarray, keys_per_record: np.ndarray, tombstone: np.ndarray, verdicts: Verdicts
    ) -> None:
        """Records that decode without error into no row."""
        for index in np.flatnonzero((values_per_record == 0) & ~tombstone).tolist():
            if index not in verdicts.refused:
                verdicts.skipped[index] = RULE_NO_ROW
        for index in np.flatnonzero(keys_per_record == 0).tolist():
            if index not in verdicts.refused:
                verdicts.skipped[index] = RULE_NO_KEY_ROW
        if self._skips_null:
            for index in np.flatnonzero(tombstone).tolist():
                if index not in verdicts.refused:
                    verdicts.skipped[index] = RULE_NULL_VALUE

    def _declared_columns(
        self, block: RecordBlock, joined: _Joined, key: Decoded | None, value: Decoded, verdicts: Verdicts
    ) -> list[pa.Array]:
        columns: list[pa.Array] = []
        for column in rows.stored_columns(self._table.table):
            if column.kind is ColumnKind.METADATA and column.name not in self._value_index:
                for index, reason in unheld_times(block, column).items():
                    verdicts.refused.setdefault(index, reason)
                per_record = metadata_column(block, column)
                columns.append(per_record if joined.is_identity else per_record.take(pa.array(joined.record)))
                continue
            from_key, from_value = (
                self._as_declared(column.name, picked)
                for picked in (
                    self._picked(key, self._key_index.get(column.name), joined.key_row),
                    self._picked(value, self._value_index.get(column.name), joined.value_row),
                )
            )
            chosen = from_value if from_key is None else from_key
            assert chosen is not None
            if self._check_agreement and from_key is not None and from_value is not None:
                self._refuse_conflicts(column.name, joined, from_key, from_value, verdicts)
            elif not self._keyed and from_key is not None and from_value is not None:
                chosen = pc.coalesce(from_value, from_key)  # Flink writes value columns over key columns
            if self._keyed and column.name in self._table.primary_key and chosen.null_count:
                for row in np.flatnonzero(chosen.is_null().to_numpy(zero_copy_only=False)).tolist():
                    reason = f"key: primary key column '{column.name}' is null"
                    verdicts.refused.setdefault(int(joined.record[row]), reason)
            columns.append(chosen)
        return columns

    def _picked(self, decoded: Decoded | None, index: int | None, row: np.ndarray | None) -> pa.Array | None:
        if decoded is None or index is None:
            return None
        column = decoded.rows.column(index)
        return column if row is None else column.take(pa.array(row, mask=row < 0))

    def _as_declared(self, name: str, values: pa.Array | None) -> pa.Array | None:
        return values if values is None or name not in self._cut else declared_values(values, self._cut[name])

    def _picked_kinds(self, kinds: pa.Array, joined: _Joined) -> pa.Array:
        """Row kinds of a format that carries changes; such tables are not keyed, so no row is a tombstone."""
        picked = kinds if joined.value_row is None else kinds.take(pa.array(joined.value_row))
        return picked.cast(pa.string())

    def _refuse_conflicts(
        self, name: str, joined: _Joined, from_key: pa.Array, from_value: pa.Array, verdicts: Verdicts
    ) -> None:
        """Rows whose value contradicts the key.

        A key part that is null is refused as such. A copy that is absent (or null) says nothing against the key, unless
        null may stand for what could not be read.
        """
        if pa.types.is_nested(from_key.type):
            pairs = zip(from_key.to_pylist(), from_value.to_pylist(), strict=True)
            differs = np.array([None not in pair and pair[0] != pair[1] for pair in pairs], bool)
        else:
            unequal = pc.not_equal(from_key, from_value)
            if pa.types.is_floating(from_key.type):
                unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(from_key), pc.is_nan(from_value))))
            if not unequal.null_count and not pc.any(unequal).as_py():
                return
            differs = unequal.fill_null(False).to_numpy(zero_copy_only=False)
        if not self._trusts_null:
            differs |= pc.and_(from_value.is_null(), from_key.is_valid()).to_numpy(zero_copy_only=False)
        if joined.value_row is not None:
            differs &= joined.value_row >= 0  # a tombstone has no copy
        for row in np.flatnonzero(differs).tolist():
            reason = DIFFERENT_COPY if from_value[row].is_valid else UNREAD_COPY
            verdicts.refused.setdefault(int(joined.record[row]), reason.format(name=name))

    def _assemble(
        self,
        block: RecordBlock,
        joined: _Joined,
        columns: list[pa.Array],
        kinds: pa.Array | None,
        verdicts: Verdicts,
    ) -> DecodedBlock:
        count = len(joined.record)
        if verdicts.refused and count:
            bad = np.fromiter(verdicts.refused, np.int64, len(verdicts.refused))
            keep = ~np.isin(joined.record, bad)
            mask = pa.array(keep)
            columns = [column.filter(mask) for column in columns]
            kinds = kinds if kinds is None else kinds.filter(mask)
            joined = joined.filtered(keep)
            count = len(joined.record)
        tombstone = np.zeros(count, bool) if joined.value_row is None else joined.value_row < 0
        if kinds is None:
            kinds = pa.repeat(pa.scalar(self._upsert_kind), count)
        if self._keyed and tombstone.any():
            kinds = pc.if_else(pa.array(tombstone), rows.KIND_DELETE, self._upsert_kind)
        within = np.zeros(count, np.int32)
        if not joined.is_identity and count:
            starts = np.flatnonzero(np.diff(joined.record, prepend=-1))
            within = (np.arange(count) - np.repeat(starts, np.diff(starts, append=count))).astype(np.int32)
        by_record = place_columns(block)
        if count != len(block) or not joined.is_identity:
            order = pa.array(joined.record)
            by_record = {name: column.take(order) for name, column in by_record.items()}
        filled = {**by_record, rows.KIND: kinds, rows.ROW: pa.array(within)}
        system = [
            filled[item.name] if item.name in filled else pa.nulls(count, item.type)
            for item in self.schema
            if item.name in rows.SYSTEM_COLUMNS
        ]
        declared = [
            column.cast(item.type) if column.type != item.type else column
            for column, item in zip(columns, list(self.schema)[len(system) :], strict=True)
        ]
        batch = pa.RecordBatch.from_arrays([*system, *declared], schema=self.schema)
        return DecodedBlock(batch, verdicts, len(np.unique(joined.record[tombstone])) if tombstone.any() else 0)

    def quarantine(self, block: RecordBlock, reasons: Sequence[str]) -> pa.RecordBatch:
        """Rows that keep refused records as they are: raw key, value and headers, with the reason."""
        header = self.schema.field(rows.RAW_HEADERS).type
        filled = {
            **place_columns(block),
            rows.KIND: pa.repeat(pa.scalar(rows.KIND_QUARANTINED), len(block)),
            # A reason quotes what was read, and half of a surrogate pair cannot be stored.
            rows.REASON: pa.array([text.encode("utf-8", "backslashreplace").decode() for text in reasons], pa.string()),
            rows.RAW_KEY: block.keys,
            rows.RAW_VALUE: block.values,
            rows.RAW_HEADERS: pa.array([header_rows(record) for record in objects_of(block)], header),
        }
        return self._sparse(filled, len(block))

    def accounting(self, topic: str, partition: int, offset: int, text: str) -> pa.RecordBatch:
        """The row that accounts for a range."""
        filled = {
            rows.KIND: pa.array([rows.KIND_ACCOUNTING]),
            rows.TOPIC: pa.array([topic]),
            rows.PARTITION: pa.array([partition], pa.int32()),
            rows.OFFSET: pa.array([offset], pa.int64()),
            rows.ACCOUNTING: pa.array([text]),
        }
        return self._sparse(filled, 1)

    def _sparse(self, filled: dict[str, pa.Array], count: int) -> pa.RecordBatch:
        arrays = [filled[item.name] if item.name in filled else pa.nulls(count, item.type) for item in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _present(column: pa.Array) -> tuple[np.ndarray, Messages]:
    """Places of the messages that are not null, and these."""
    if not column.null_count:
        return np.arange(len(column)), Messages(column)
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)), Messages(column.drop_null())


@dataclass(frozen=True, slots=True)
class _Joined:
    """For each output row its record, and its row among decoded keys and values (-1: none; None: same as record)."""

    record: np.ndarray
    key_row: np.ndarray | None
    value_row: np.ndarray | None

    @property
    def is_identity(self) -> bool:
        return self.key_row is None

    def filtered(self, keep: np.ndarray) -> _Joined:
        record = self.record[keep]
        return _Joined(
            record,
            record if self.key_row is None else self.key_row[keep],
            record if self.value_row is None else self.value_row[keep],
        )
