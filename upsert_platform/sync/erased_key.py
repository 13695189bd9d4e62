"""The keys that can be erased: of tables read as upserts, from tables with a primary key."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.declared_values import cut_keys, declared_values
from upsert_platform.changelog.erasure import KeyRows, same_keys
from upsert_platform.changelog.lake import Lake
from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import Mask
from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.formats import build_decoder
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import FormatSide, KafkaTable
from upsert_platform.sync.binding import Binding, Target
from upsert_platform.sync.shown_rows import JSON_OPTIONS

if TYPE_CHECKING:
    import pyarrow as pa


def erasable_source(binding: Binding, table: str) -> TopicSource:
    """The topics of a table that is read.

    Raises:
        UpsertPlatformError: there is no such table, or its changelog has no last value per key.
    """
    source = binding.sources.get(table)
    if source is None:
        target = binding.targets.get(table)
        if target is not None:
            read = ", ".join(target.insert.tables)
            raise UpsertPlatformError(f"table '{table}' is written: erase the key of what it is written from, {read}")
        known = ", ".join(sorted(binding.sources)) or "none"
        raise UpsertPlatformError(f"no insert reads a table '{table}'; read are: {known}")
    if not isinstance(source, TopicSource) or not source.kafka.is_upsert:
        raise UpsertPlatformError(
            f"table '{table}' of connector '{source.table.connector}' cannot be erased by key: its changelog holds"
            " every change of its source, not the last value of a key. Delete the row at the source, let job 'sync'"
            " follow, and rebuild the changelog: move its folder in the lake away"
        )
    return source


def check_erasable(
    binding: Binding, table: str, targets: Mapping[str, Target], leave: Collection[str], lake: Lake
) -> None:
    """Refuses what would keep rows of a key, unless somebody answers for it.

    Raises:
        UpsertPlatformError: a name that is left is none; a query keeps rows of the table in its state; a table has no
            key, so that nobody can tell its rows of one.
    """
    queries = [name.removesuffix("$query") for name, item in binding.queries.items() if table in item.query.tables]
    unknown = sorted(set(leave) - set(targets) - set(queries))
    if unknown:
        known = ", ".join([*targets, *queries]) or "nothing"
        raise UpsertPlatformError(f"'{unknown[0]}' is not fed by table '{table}'; that is: {known}")
    for name in queries:
        if name not in leave:
            raise UpsertPlatformError(
                f"query '{name}' keeps rows of '{table}' in its state and history ({lake.query(name).uri}), which"
                f" cannot be erased by key. Send a delete ('upsert-platform send {table} --delete') and run the jobs"
                " 'sync' and 'rebuild', and an hour later 'compact' with 'keep_hours: 1': then nothing of the key is in"
                f" it, and this goes on with --leave {name}"
            )
    for name, target in targets.items():
        if name in leave:
            continue
        with closing(target.open()) as destination:
            keyed = destination.primary_key
        if not keyed:
            raise UpsertPlatformError(
                f"table '{name}' has no key, or appends rows whatever key it has: nobody can tell which of its rows are"
                f" those of one. Delete them there, and run this with --leave {name}"
            )


def check_rows_apart(targets: Mapping[str, Target]) -> None:
    """Refuses tables in which the row of a key may be that of another key too.

    Raises:
        UpsertPlatformError: a table that is written stores several values of its key as one.
    """
    for name, target in targets.items():
        with closing(target.open()) as destination:
            if not isinstance(destination, StoresOtherValues) or not destination.state().applied_batch:
                continue
            if destination.folded_key():
                raise UpsertPlatformError(
                    f"table '{name}' stores several values of {', '.join(destination.folded_key())} as one, so the row"
                    " of this key may be another key's as well, which its delete would take away. Take its insert out"
                    " of the project while you erase, and drop the table, so that it is built anew"
                )


def key_rows(table: KafkaTable, key: Mapping[str, Any]) -> KeyRows:
    """Return the matcher of rows and records of a key.

    Args:
        key: values of the primary key columns, as JSON has them.

    Raises:
        UpsertPlatformError: these are not the columns, or a value is not of its column's type.
    """
    names = table.primary_key
    if set(key) != set(names):
        raise UpsertPlatformError(f"the key of table '{table.name}' is of the columns {', '.join(names)}")
    fields = []
    for name in names:
        kind = table.table.column(name).type
        assert kind is not None
        fields.append((name, kind))
    decoded = build_decoder("json", fields, JSON_OPTIONS).decode([json.dumps(key, ensure_ascii=False).encode()])
    if decoded.errors or decoded.rows.num_rows != 1:
        reason = next(iter(decoded.errors.values()), "it gives no row")
        raise UpsertPlatformError(f"the key of table '{table.name}': {Mask.of(table.table).reason(reason)}")
    row = _stored(decoded.rows.select(list(names)), table)
    if any(column.null_count for column in row.columns):
        raise UpsertPlatformError(f"the key of table '{table.name}' has no null")
    assert table.key is not None
    return KeyRows(row, _of_record(table, table.key, row), cut_keys(table.table))


def _stored(found: pa.RecordBatch, table: KafkaTable) -> pa.RecordBatch:
    """Key columns as the changelog has them."""
    import pyarrow as pa

    kinds = {name: table.table.column(name).type for name in found.schema.names}
    fields = [pa.field(name, arrow_type(kind)) for name, kind in kinds.items() if kind is not None]
    columns = [_declared(found.column(item.name).cast(item.type), kinds[item.name]) for item in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _declared(values: pa.Array, kind: LogicalType | None) -> pa.Array:
    return values if kind is None else declared_values(values, kind)


def _of_record(table: KafkaTable, side: FormatSide, row: pa.RecordBatch) -> Callable[[pa.Array], pa.Array]:
    """Return a function that masks the raw keys equal to the key; null for those that cannot be decoded."""
    decoder = build_decoder(side.format, side.format_columns, side.options)

    def judge(keys: pa.Array) -> pa.Array:
        import pyarrow as pa

        texts = keys.to_pylist()
        places = [at for at, text in enumerate(texts) if text is not None]
        decoded = decoder.decode([texts[at] for at in places])
        found = decoded.rows.rename_columns(list(side.names)).select(list(table.primary_key))
        same = same_keys(_stored(found, table), row).to_pylist()
        rows = list(zip(decoded.message.to_pylist(), same, strict=True))
        told = {places[message]: False for message, _ in rows}
        told |= {places[message]: True for message, is_same in rows if is_same}
        return pa.array([told.get(at) for at in range(len(texts))], pa.bool_())

    return judge


def parsed_key(text: str, table: KafkaTable) -> Mapping[str, Any]:
    """A key as it is given: a JSON object of its columns, or the value alone where there is one column.

    Raises:
        UpsertPlatformError: it is neither.
    """
    names = table.primary_key
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text, parse_float=str)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    elif len(names) == 1:
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        kind = table.table.column(names[0]).type
        text_like = kind is not None and str(kind).startswith(("STRING", "VARCHAR", "CHAR"))
        return {names[0]: text if text_like else value}
    raise UpsertPlatformError(f"the key is a JSON object of the columns {', '.join(names)}")
