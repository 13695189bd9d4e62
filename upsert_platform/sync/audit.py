"""A declared table as plain arguments for the referee: how its topic is read, what it takes, who reads the table.

The platform tells where things are and how far it has come; what the topic and the table hold, the referee sees itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.accounting import ends_of_batches
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.quarantine import quarantined_places
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.masking import Mask
from upsert_platform.core.source import Source
from upsert_platform.kafka.options import KeyConflict, StartupMode, UpsertKafkaSettings
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import FormatSide, KafkaTable
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.formats import Side
from upsert_platform.referee.json_values import json_decoder
from upsert_platform.referee.kinds import kind_of
from upsert_platform.referee.last_values import Form, LastValues
from upsert_platform.referee.stores import maxcompute_rows, tablestore_rows, topic_rows
from upsert_platform.referee.topic import Ends, consume, first_offsets
from upsert_platform.referee.verdict import Target as Columns
from upsert_platform.referee.verdict import Verdict, judge
from upsert_platform.sync.audit_selection import NotJudgedError, selection_of
from upsert_platform.sync.binding import QuerySource, Target, changelog_of
from upsert_platform.sync.position import check_position
from upsert_platform.tablestore.credentials import sdk_provider
from upsert_platform.tablestore.options import InsertMode
from upsert_platform.tablestore.table import TablestoreTable

if TYPE_CHECKING:
    from upsert_platform.changelog.store import ChangelogStore


@dataclass(frozen=True)
class Audit:
    """A verdict, and how far it reaches.

    Attributes:
        batch: the applied batch up to whose offsets the topic was read.
        behind: batches of the changelog that the table has not applied yet.
    """

    verdict: Verdict
    batch: int
    behind: int


def audit(bound: Target, lake: Lake) -> Audit:
    """Judges a declared table by its topic, up to the offsets of the batches that it has applied.

    Args:

    Raises:
        NotJudgedError: the declaration is beyond the referee; the message says what of it.
        RefereeError: a format or an option is, or something cannot be read.
        EndpointError: the destination cannot be reached.
    """
    kafka = _kafka(bound.source)
    form = form_of(kafka)
    columns = {column.name: str(column.type) for column in bound.table.physical_columns}
    with _rows(bound, columns) as (rows, in_place_of_null):
        selection = selection_of(bound, in_place_of_null)
        store = changelog_of(bound.source, lake)
        applied, head = _applied(bound, store), store.head()
        batches = list(ends_of_batches(store.accounts(after=0, upto=applied)).values())
        last = LastValues(form, batches=batches, set_aside=_quarantined(store, applied))
        try:
            config = kafka.endpoint.consumer_config()
            ends = batches[-1] if batches else {}
            topics = sorted({topic for topic, _ in ends})
            last.add(consume(config, topics, ends))
            key = bound.table.primary_key

            def later() -> Iterator[list[Any]]:
                """The keys of batches that the table may have got while it was read, or has got in part."""
                for named in _keys_behind(kafka, form, store, applied, ends):
                    yield [named[str(selection.columns[name])] for name in key]

            verdict = judge(
                last,
                rows,
                Columns(columns, key, Mask.of(bound.table).columns),
                selection,
                refused=_refused(bound, lake, {name: columns[name] for name in key}),
                later=later,
                lost_records=any(first_offsets(config, topics).values()),
            )
        finally:
            last.close()
    _mask_records(verdict, Mask.of(kafka.table))
    return Audit(verdict, applied, max(0, (head.batch if head else 0) - applied))


def _keys_behind(
    kafka: KafkaTable, form: Form, store: ChangelogStore, applied: int, ends: Ends
) -> Iterator[Mapping[str, Any]]:
    """The keys that records of the batches behind an applied one name, as the referee reads them.

    Args:
        ends: of the applied batch.
    """
    head = store.head()
    if head is None or head.batch <= applied:
        return
    reached = list(ends_of_batches(store.accounts(after=0, upto=head.batch)).values())[-1]
    behind = LastValues(form)
    try:
        topics = sorted({topic for topic, _ in reached})
        behind.add(consume(kafka.endpoint.consumer_config(), topics, reached, starts=ends))
        for last in behind.results():
            yield last.key
    finally:
        behind.close()


def _mask_records(verdict: Verdict, mask: Mask) -> None:
    """Leaves out of what is told of single records what may quote a masked column."""
    if mask:
        told = (text.partition(": ") for text in verdict.topic["first"])
        verdict.topic["first"] = [f"{place}: {mask.reason(what)}" for place, _, what in told]


def audit_or_reason(bound: Target, lake: Lake) -> Audit | str:
    """As `audit`; why a table is not judged, where its declaration or its records are beyond the referee."""
    try:
        return audit(bound, lake)
    except (NotJudgedError, RefereeError) as error:
        return str(error)


def _kafka(source: Source | QuerySource) -> KafkaTable:
    if isinstance(source, TopicSource):
        return source.kafka
    raise NotJudgedError(f"table '{source.table.name}': the referee reads topics, and it has none")


def form_of(kafka: KafkaTable) -> Form:
    """Return the form in which the referee reads the records of a table.

    Raises:
        NotJudgedError: its records are not upserts from the topic's beginning.
    """
    settings = kafka.settings
    if not isinstance(settings, UpsertKafkaSettings) or kafka.key is None:
        raise NotJudgedError(f"table '{kafka.name}': the referee judges upsert-kafka tables, whose keys have one value")
    if settings.startup_mode is not StartupMode.EARLIEST:
        raise NotJudgedError(
            f"table '{kafka.name}': with 'scan.startup.mode' = '{settings.startup_mode.value}' older records have no"
            " part, and a table is not judged by some of its records"
        )
    conflict = settings.key_conflict is KeyConflict.KEY
    return Form(_side(kafka.key), _side(kafka.value), kafka.primary_key, key_counts=conflict)


def _side(side: FormatSide) -> Side:
    names = side.names or ("",)
    return Side(side.format, {name: str(kind) for name, kind in side.format_columns}, names, dict(side.options))


def _applied(bound: Target, store: ChangelogStore) -> int:
    destination = bound.open()
    try:
        state = destination.state()
    finally:
        destination.close()
    check_position(store, store.head(), state, table=bound.table.name, uri=destination.uri)
    return state.applied_batch


def _quarantined(store: ChangelogStore, upto: int) -> list[tuple[str, int, int]]:
    found = quarantined_places(store, upto=upto, with_discarded=True)
    columns = (found["_topic"].to_pylist(), found["_partition"].to_pylist(), found["_offset"].to_pylist())
    return list(zip(*columns, strict=True))


def _refused(bound: Target, lake: Lake, key: Mapping[str, str]) -> list[list[Any]]:
    """Keys that the destination refused, in the referee's form."""
    kinds = {name: kind_of(text) for name, text in key.items()}
    decode = json_decoder(kinds, {"json.timestamp-format.standard": "ISO-8601"})
    found, mask = [], Mask.of(bound.table)
    for text in RefusedStore(lake.refused(bound.table.name)).keys()["key"].to_pylist():
        try:
            found.append(decode(json.dumps(json.loads(text)).encode()))
        except (UndecodableError, UnjudgedError) as error:
            raise NotJudgedError(
                f"a refused key of '{bound.table.name}' cannot be read: {mask.reason(str(error))}"
            ) from None
    return found


@contextmanager
def _rows(bound: Target, columns: Mapping[str, str]) -> Iterator[tuple[Iterator[Sequence[Any]], dict[str, Any]]]:
    """The rows of the table, by its vendor's client, and what it holds in the place of nulls."""
    match bound.checked:
        case TablestoreTable():
            yield from _tablestore(bound.checked, columns)
        case MaxComputeTable():
            yield from _maxcompute(bound.checked, columns)
        case KafkaTable():
            yield from _topic(bound.checked, columns)
        case _:
            raise NotJudgedError(
                f"table '{bound.table.name}': its rows follow from records by rules of connector"
                f" '{bound.table.connector}', which the referee does not know"
            )


_Found = Iterator[tuple[Iterator[Sequence[Any]], dict[str, Any]]]


def _tablestore(table: TablestoreTable, columns: Mapping[str, str]) -> _Found:
    from tablestore import OTSClient

    from upsert_platform.tablestore.sdk import LOGGER, silence_sdk
    from upsert_platform.tablestore.transport import Endpoint

    settings = table.settings
    merges = settings.insert_mode is InsertMode.UPDATE and not settings.delete_mode.deletes_columns
    if not settings.delete_mode.deletes_rows or merges:
        raise NotJudgedError(
            f"table '{table.name}': with 'insert.mode' = '{settings.insert_mode}' and 'delete.mode' ="
            f" '{settings.delete_mode}' it keeps what its topic has no longer, so the two are not to be equal"
        )
    if settings.time_to_live > 0:
        raise NotJudgedError(f"table '{table.name}': 'table.time-to-live' lets rows expire that its topic still has")
    silence_sdk()
    endpoint = Endpoint.of(settings)
    client = OTSClient(
        endpoint.address,
        instance_name=endpoint.instance,
        credentials_provider=sdk_provider(endpoint.key),
        region=endpoint.region,
        logger_name=LOGGER,
    )
    yield tablestore_rows(client, table.table_name, columns, [item.name for item in table.primary_key]), {}


def _maxcompute(table: MaxComputeTable, columns: Mapping[str, str]) -> _Found:
    from upsert_platform.maxcompute.connection import Connection
    from upsert_platform.maxcompute.sdk import load_sdk

    load_sdk()
    from odps import ODPS

    plan = table.partitions
    if not table.upserts or table.places or plan.static or plan.computed:
        raise NotJudgedError(
            f"table '{table.name}': appended rows, fixed or computed partitions, and rows that stay in older partitions"
            " follow from more than the last value of a key"
        )
    if plan.columns and table.settings.lifecycle is not None:
        raise NotJudgedError(f"table '{table.name}': 'table.lifecycle' lets partitions expire that its topic still has")
    connection = Connection.of(table.settings)
    client = ODPS(
        connection.account(),
        project=connection.project,
        endpoint=connection.endpoint,
        tunnel_endpoint=connection.tunnel_endpoint,
        overwrite_global=False,
    )
    dynamic = [name for name in columns if name.lower() in plan.dynamic]
    try:
        yield maxcompute_rows(client, str(table.target), columns), dict.fromkeys(dynamic, plan.default)
    finally:
        client.rest.session.close()


def _topic(kafka: KafkaTable, columns: Mapping[str, str]) -> _Found:
    held = LastValues(form_of(kafka))
    try:
        held.add(consume(kafka.endpoint.consumer_config(), kafka.settings.topic))
        yield topic_rows(held, list(columns)), {}
    finally:
        held.close()
