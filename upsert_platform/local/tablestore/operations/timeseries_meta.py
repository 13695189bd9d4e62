"""QueryTimeseriesMeta, UpdateTimeseriesMeta, DeleteTimeseriesMeta."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse
from upsert_platform.local.tablestore.messages import timeseries as messages
from upsert_platform.local.tablestore.timeseries.conditions import decode_condition
from upsert_platform.local.tablestore.timeseries.rows import (
    SeriesKey,
    check_key,
    key_cells,
    read_tags,
    sortable_key,
    write_tags,
)
from upsert_platform.local.tablestore.timeseries.store import Timeline

_PAGE = 200


def read_key(message: Any) -> SeriesKey:
    """A timeline from a request; tags come as a list or in their text form."""
    if message.tag_list:
        tags = tuple(sorted((tag.name, tag.value) for tag in message.tag_list))
    else:
        tags = read_tags(message.tags)
    return SeriesKey(message.measurement, message.source, tags)


def query(instance: Instance, body: bytes) -> bytes:
    """Lists timelines that fit a condition, in pages; the token of a page is the key of the next timeline."""
    request = parse(messages.QueryTimeseriesMetaRequest, body)
    table = instance.series.table(request.table_name)
    fits = decode_condition(request.condition) if request.HasField("condition") else lambda line: True
    limit = min(request.limit, _PAGE) if request.limit > 0 else _PAGE
    response = messages.QueryTimeseriesMetaResponse()
    hits = 0
    for line in instance.series.timelines(table):
        if not fits(line):
            continue
        hits += 1
        if line.sortable < request.token:
            continue
        if len(response.timeseries_metas) < limit:
            _describe(line, response.timeseries_metas.add())
        elif not response.HasField("next_token"):
            response.next_token = line.sortable
    if request.get_total_hit:
        response.total_hit = hits
    return bytes(response.SerializeToString())


def _describe(line: Timeline, message: Any) -> None:
    key = message.time_series_key
    key.measurement, key.source, key.tags = line.key.measurement, line.key.source, write_tags(line.key.tags)
    for name, value in line.key.tags:
        key.tag_list.add(name=name, value=value)
    if line.attributes:
        message.attributes = line.attributes
    message.update_time = line.updated


def update(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.UpdateTimeseriesMetaRequest, body)
    table = instance.series.table(request.table_name)
    options = table.description.table_meta.meta_options
    if options.HasField("allow_update_attributes") and not options.allow_update_attributes:
        raise invalid("Updating attributes is not allowed on this table.")
    now = instance.clock.now() * 1000

    def change(meta: Any) -> None:
        key = read_key(meta.time_series_key)
        check_key(key, table.key_schema)
        attributes = write_tags(read_tags(meta.attributes)) if meta.attributes else ""
        sortable = sortable_key(key_cells(key, table.key_schema))
        instance.series.set_attributes(table, sortable, key, attributes, now)

    response = messages.UpdateTimeseriesMetaResponse()
    _each(request.timeseries_meta, change, response)
    return bytes(response.SerializeToString())


def delete(instance: Instance, body: bytes) -> bytes:
    request = parse(messages.DeleteTimeseriesMetaRequest, body)
    table = instance.series.table(request.table_name)
    response = messages.DeleteTimeseriesMetaResponse()
    _each(
        request.timeseries_key,
        lambda key: instance.series.forget(table, sortable_key(key_cells(read_key(key), table.key_schema))),
        response,
    )
    return bytes(response.SerializeToString())


def _each(items: Iterable[Any], change: Callable[[Any], None], response: Any) -> None:
    """Applies a change to each item; what is refused is reported by its index."""
    for index, item in enumerate(items):
        try:
            change(item)
        except ServiceError as error:
            response.failed_rows.add(row_index=index, error_code=error.code, error_message=error.message)
