"""Rows of any node of a project: the newest of a topic, a changelog or a query, the first of a table. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.connector import Readable, Writable
from upsert_platform.core.errors import DeclarationError, UpsertPlatformError
from upsert_platform.core.masking import Mask
from upsert_platform.core.options import nearest
from upsert_platform.core.wording import counted
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.sync.binding import Binding, Target, changelog_of, query_store
from upsert_platform.sync.connect_connector import ConnectTarget
from upsert_platform.sync.connectors import connector_of, is_topic, streams_of
from upsert_platform.sync.destination_rows import connect_cells, maxcompute_rows, tablestore_rows
from upsert_platform.sync.relations import AsOf, newest
from upsert_platform.sync.shown_rows import cell_texts, row_texts
from upsert_platform.tablestore.table import TablestoreTable

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: Final = ("topics", "tables", "queries", "changelogs")
"""First parts of the names that assets have, in the order in which a bare name is looked for."""
_OF_LAKE: Final = ("changelogs", "queries")
_WIDER: Final = 8


@dataclass(frozen=True, slots=True)
class Peeked:
    """Rows of a node.

    Attributes:
        node: its name in full, as assets have it: ``topics/users``.
        about: what was looked at, in words.
        texts: a JSON object per row.
    """

    node: str
    about: str
    texts: tuple[str, ...]


def nodes(binding: Binding) -> dict[str, str]:
    """Every node in full, and what it is."""
    named: dict[str, str] = {}
    for name, table in binding.project.tables.items():
        if is_topic(table) and streams_of(table) and name not in binding.targets:
            named[f"topics/{name}"] = f"newest records of {', '.join(streams_of(table))}"
        if name in binding.sources:
            named[f"changelogs/{name}"] = "newest rows of the changelog in the lake"
    for name in binding.queries:
        named[f"queries/{_bare(name)}"] = "newest rows of the query's result"
    for name, target in binding.targets.items():
        named[f"tables/{name}"] = f"rows of the {target.table.connector} table"
    return named


def peek(binding: Binding, name: str, *, limit: int, lake: Lake, as_of: AsOf | None = None) -> Peeked:
    """Rows of a node.

    Args:
        name: in full (``changelogs/users``), or alone: then a topic comes before a query and a table.
        lake: that holds changelogs and queries.
        as_of: the last batch that is shown; that of the lake if left out.

    Raises:
        UpsertPlatformError: there is no such node, or it cannot be read.
    """
    kind, node = _resolved(binding, name, kinds=_KINDS if as_of is None else _OF_LAKE)
    if as_of is not None and kind not in _OF_LAKE:
        raise UpsertPlatformError(
            f"'{name}' is not of the lake, which alone keeps history: name a changelog or a query"
        )
    upto = as_of or newest
    looks: Mapping[str, Callable[[], tuple[str, list[str]]]] = {
        "topics": partial(_topic, binding, node, limit),
        "changelogs": partial(_changelog, binding, node, limit, lake, upto),
        "queries": partial(_query, binding, node, limit, lake, upto),
        "tables": partial(_table, binding, node, limit),
    }
    about, texts = looks[kind]()
    return Peeked(f"{kind}/{node}", about, tuple(texts))


def _resolved(binding: Binding, name: str, *, kinds: tuple[str, ...]) -> tuple[str, str]:
    known = nodes(binding)
    wanted = [name] if name in known else [f"{kind}/{_bare(name)}" for kind in _order(name, kinds)]
    for full in wanted:
        if full in known:
            kind, _, node = full.partition("/")
            return kind, node
    near = nearest(name.rpartition("/")[2], {item.rpartition("/")[2] for item in known}).rstrip("?")
    raise UpsertPlatformError(
        f"there is no topic, changelog, query or table '{name}'{near}; there are: {', '.join(known)}"
    )


def _order(name: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    return ("queries",) if name.endswith("$query") else kinds


def _bare(name: str) -> str:
    return name.removesuffix("$query")


def _topic(binding: Binding, name: str, limit: int) -> tuple[str, list[str]]:
    source = binding.sources.get(name)
    if source is None:  # no insert reads it
        table = binding.project.tables[name]
        connector = connector_of(table)
        assert isinstance(connector, Readable)
        source, problems = connector.read(table)
        if source is None:
            raise DeclarationError([problem for problem in problems if problem.severity == "error"])
    if not isinstance(source, TopicSource):
        raise UpsertPlatformError(f"table '{name}': what it reads is not a topic")
    return _newest(source.kafka, limit)


def _newest(kafka: KafkaTable, limit: int) -> tuple[str, list[str]]:
    from upsert_platform.kafka.source.newest import newest_records

    found = newest_records(kafka, limit)
    spans = f"{counted(found.partitions, 'partition')}, {counted(found.offsets, 'offset')}"
    about = f"the newest records of {', '.join(found.topics)} ({spans})"
    return about, row_texts(found.rows, rows.stored_columns(kafka.table), Mask.of(kafka.table))


def _changelog(binding: Binding, name: str, limit: int, lake: Lake, as_of: AsOf) -> tuple[str, list[str]]:
    return _committed(changelog_of(binding.sources[name], lake), limit, Mask.of(binding.sources[name].table), as_of)


def _query(binding: Binding, name: str, limit: int, lake: Lake, as_of: AsOf) -> tuple[str, list[str]]:
    found = next(source for query, source in binding.queries.items() if _bare(query) == name)
    return _committed(query_store(found, lake), limit, Mask.of(found.table), as_of)


def _committed(store: ChangelogStore, limit: int, mask: Mask, as_of: AsOf) -> tuple[str, list[str]]:
    """The newest change rows of a table of the lake: of the last batches that together have enough."""

    head = store.head()
    if head is None or not head.batch:
        return f"nothing was committed to {store.uri} yet; run job 'sync'", []
    span, last = 1, as_of(store)
    while True:
        after = max(0, last - span)
        found = _changes(store, after=after, upto=last)
        if found.num_rows >= limit or not after:
            break
        span *= _WIDER
    order = [(name, "ascending") for name in (rows.BATCH, rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.ROW)]
    found = found.sort_by(order)
    shown = found.slice(max(0, found.num_rows - limit))
    about = f"the newest rows of {store.uri}, of {counted(last, 'batch')}"
    return about, row_texts(shown, rows.stored_columns(store.table), mask)


def _changes(store: ChangelogStore, *, after: int, upto: int) -> pa.Table:
    import pyarrow.dataset as ds

    data = store.dataset()
    heavy = (rows.RAW_KEY, rows.RAW_VALUE, rows.RAW_HEADERS, rows.ACCOUNTING, rows.REASON)
    batch = ds.field(rows.BATCH)
    wanted = (batch > after) & (batch <= upto) & ds.field(rows.KIND).isin(list(rows.CHANGE_KINDS))
    return data.to_table(columns=[name for name in data.schema.names if name not in heavy], filter=wanted)


def _table(binding: Binding, name: str, limit: int) -> tuple[str, list[str]]:
    target = binding.targets[name]
    match target.checked:
        case KafkaTable():
            return _newest(target.checked, limit)
        case TablestoreTable():
            return _tablestore(target.checked, limit)
        case ConnectTarget():
            return _connect(target.checked, limit)
        case MaxComputeTable():
            return _maxcompute(target, target.checked, limit)
    connector = connector_of(target.table)
    if isinstance(connector, Writable) and (found := connector.first_rows(target.checked, limit)) is not None:
        return found[0], row_texts(found[1], target.table.physical_columns, Mask.of(target.table))
    raise UpsertPlatformError(f"table '{name}': rows of connector '{target.table.connector}' cannot be shown")


def _tablestore(table: TablestoreTable, limit: int) -> tuple[str, list[str]]:
    shown = tablestore_rows(table, limit)
    return f"the first rows of Tablestore table {table.table_name}, by key", row_texts(shown, table.columns, table.mask)


def _connect(target: ConnectTarget, limit: int) -> tuple[str, list[str]]:
    """Cells as they are: which there are is told by records, not by a declaration."""
    sink = target.sink
    return f"the first rows of Tablestore table {sink.table_name}, by key", cell_texts(connect_cells(target, limit))


def _maxcompute(target: Target, table: MaxComputeTable, limit: int) -> tuple[str, list[str]]:
    found = maxcompute_rows(table, limit)
    return f"rows of MaxCompute table {table.target}", row_texts(found, target.table.physical_columns, table.mask)
