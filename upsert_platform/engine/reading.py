"""Reading of a changelog by tasks: the changes of new batches, in tables of a size that operators handle well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from upsert_platform.changelog import rows
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.declared_values import step_of, with_declared_keys
from upsert_platform.changelog.parquet_files import columns_to_read, open_parquet, part_of
from upsert_platform.changelog.rows import ORDER
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.plan import Scan
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.sources import PUT, signed_rows
from upsert_platform.engine.steps import WEIGHT

_CHUNK: Final = 1 << 17
"""Rows of a changelog that are handed on at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or one of so many parts of it: row groups that follow each other.

    Attributes:
        path: relative to the changelog's Delta table.
    """

    path: str
    part: int = 0
    parts: int = 1

    def row_groups(self, count: int) -> range:
        """Those of this part, of so many in the file."""
        return range(self.part * count // self.parts, (self.part + 1) * count // self.parts)


@dataclass(frozen=True, slots=True)
class ChangelogShare:
    """Data of a changelog, and which of its batches are new.

    Attributes:
        location: of the changelog's Delta table.
    """

    location: TableLocation
    pieces: tuple[Piece, ...]
    after: int
    upto: int


def read_changes(
    share: ChangelogShare,
    scan: Scan,
    *,
    upserts: bool,
    lanes: bool = False,
    parts: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[pa.Table]:
    """The changes of the new batches.

    Columns that an older file lacks are null. Where statistics say that a row group holds nothing but rows that are
    added by new batches, neither `_kind` nor `_batch` is read for them.

    Args:
        lanes: topic and partition of each row are wanted as well.
        parts: of columns of type ROW the fields that are wanted, where not all are.

    Returns:
        The columns of the scan; with `PUT` and those of `ORDER` for `upserts`, else with `WEIGHT`.
    """
    system, folder = file_system(share.location)
    kept = rows.system_schema()
    wanted = [part_of(pa.field(field.name, arrow_type(field.type)), parts.get(field.name)) for field in scan.fields]
    given = {field.name for field in scan.fields}
    beside = [name for name in (rows.TOPIC, rows.PARTITION) if lanes and name not in given]
    schema = pa.schema([*(kept.field(name) for name in (ORDER if upserts else beside)), *wanted])
    batch = [] if rows.BATCH in schema.names else [kept.field(rows.BATCH)]
    whole = pa.schema([kept.field(rows.KIND), *batch, *schema])
    finer = {field.name: field.type for field in scan.fields if field.name in scan.key and step_of(field.type) > 1}
    waiting: list[pa.Table] = []
    for piece in share.pieces:
        path = f"{folder}{piece.path}"
        with naming(path), open_parquet(system.open_input_file(path)) as opened:
            for groups, added in _runs(opened, piece, share):
                read = schema if added and not upserts else whole
                there = columns_to_read(read, opened.schema_arrow)
                for item in opened.iter_batches(batch_size=_CHUNK, row_groups=groups, columns=there, use_threads=False):
                    table = pa.Table.from_batches([with_declared_keys(item, finer)])
                    if not added:
                        table = _new_changes(table, share)
                    if not table.num_rows:
                        continue
                    waiting.append(_told(_completed(table, read), scan, schema, upserts=upserts))
                    if sum(part.num_rows for part in waiting) >= _CHUNK:
                        yield pa.concat_tables(waiting).combine_chunks()
                        waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _runs(opened: pq.ParquetFile, piece: Piece, share: ChangelogShare) -> Iterator[tuple[list[int], bool]]:
    """Row groups that may hold new changes, those that follow each other together; whether all their rows are added."""
    metadata = opened.metadata
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    run: list[int] = []
    alike = False
    for number in piece.row_groups(metadata.num_row_groups):
        group = metadata.row_group(number)
        batches, kinds = (_extremes(group, places[name]) for name in (rows.BATCH, rows.KIND))
        if batches is not None and (batches[0] > share.upto or batches[1] <= share.after):
            continue
        new = batches is not None and batches[0] > share.after and batches[1] <= share.upto
        added = new and kinds == (rows.KIND_INSERT, rows.KIND_INSERT)
        if run and added != alike:
            yield run, alike
            run = []
        run, alike = [*run, number], added
    if run:
        yield run, alike


def _extremes(group: Any, place: int) -> tuple[Any, Any] | None:
    statistics = group.column(place).statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


def _new_changes(table: pa.Table, share: ChangelogShare) -> pa.Table:
    batches = table.column(rows.BATCH)
    new = pc.and_(pc.greater(batches, share.after), pc.less_equal(batches, share.upto))
    change = pc.is_in(table.column(rows.KIND), pa.array(rows.CHANGE_KINDS))
    return table.filter(pc.and_(new, change))


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _told(table: pa.Table, scan: Scan, schema: pa.Schema, *, upserts: bool) -> pa.Table:
    """Changes with `PUT`, or with `WEIGHT`; without `_kind` all rows are added."""
    if scan.versions:
        return _versions(table, schema)
    if upserts:
        put = pc.is_in(table.column(rows.KIND), pa.array([rows.KIND_INSERT, rows.KIND_UPDATE_AFTER]))
        return table.select(schema.names).append_column(PUT, put)
    if rows.KIND in table.column_names:
        return signed_rows(table, paired=scan.signed).select([*schema.names, WEIGHT])
    return table.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))


def _versions(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Every record as a row that is added; `PUT`, which no changelog has, is false for a delete."""
    if rows.KIND in table.column_names:
        table = table.filter(pc.not_equal(table.column(rows.KIND), rows.KIND_UPDATE_BEFORE))
        put = pc.not_equal(table.column(rows.KIND), rows.KIND_DELETE)
    else:
        put = pa.repeat(pa.scalar(True), table.num_rows)
    table = table.set_column(table.schema.get_field_index(PUT), PUT, put)
    return table.select(schema.names).append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
