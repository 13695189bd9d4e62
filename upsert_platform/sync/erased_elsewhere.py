"""Places beside the changelog that may hold an erased key: rejected rows, replays, proofs, tables of its topics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.data_files import file_system
from upsert_platform.changelog.erasure import EVERY_BATCH, KeyRows, held_rows, is_unended
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.parquet_files import open_parquet
from upsert_platform.changelog.path_segment import path_segment
from upsert_platform.changelog.refused import COLUMNS, RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.sync.binding import Binding, Target

if TYPE_CHECKING:
    import pyarrow as pa

_KEY: Final = "key"
"""Column of refused rows: the key as JSON text."""


def refused_keys(lake: Lake, names: Iterable[str]) -> dict[str, Counter[str]]:
    """Return the number of rejected rows per key, in comparable form, for the given tables."""
    return {name: Counter(map(_canonical, _texts(RefusedStore(lake.refused(name)).keys()))) for name in names}


def texts_of(keys: pa.Table) -> set[str]:
    """Keys of a table as those of its refused rows, in a form that can be compared."""
    from upsert_platform.writing.row_text import key_text

    return {
        _canonical(key_text(batch, at, batch.schema.names)) for batch in keys.to_batches() for at in range(len(batch))
    }


def settle_refused(store: RefusedStore, wanted: Collection[str]) -> list[str]:
    """Takes keys out of what a table refused, and deletes the files that held them. Under the table's lease.

    Returns:
        What holds them all the same, in words.
    """
    gone = [text for text in _texts(store.keys()) if _canonical(text) in wanted]
    if gone:
        store.settle(gone)
    # Also where another run settled them (the write of the delete does): files before that are still in the folder.
    store.remove_unused(hours=0)
    held = _refused_below(store.location, wanted)
    return [f"{store.location.uri}/{path}: refused rows of the key ({count})" for path, count in held]


def in_replays(lake: Lake, key: KeyRows, wanted: Collection[str]) -> list[str]:
    """Tables of replays into new tables with rows of a key: changelogs, and refused rows, each in words."""
    every = lake.replays()
    found = [(path, held_rows(every, path, key, upto=EVERY_BATCH).rows) for path in _files_below(every)]
    held = [(path, count) for path, count in (*found, *_refused_below(every, wanted)) if count]
    return [
        f"{every.uri}/{path}: rows of the key ({count}), of a replay into a new table; delete the row there, and the"
        " folder of that replay"
        for path, count in held
    ]


def in_proofs(lake: Lake, key: KeyRows, table: str) -> list[str]:
    """Changelogs of a table below the folders of proofs and plans, with rows of a key or without an end, in words."""
    every, told = lake.proofs(), []
    for path in _files_below(every):
        proven, run, *below = path.strip("/").split("/")
        if below[:2] != ["changelogs", path_segment(table)]:
            continue
        count = held_rows(every, path, key, upto=EVERY_BATCH).rows
        if count or is_unended(every, path):
            held = f"rows of the key ({count})" if count else "a file without an end, which may hold it"
            told.append(
                f"{every.uri}/{path}: {held}, of a proof or a plan: one that runs removes it at its end; of one that"
                f" was killed delete the folder {every.uri}/{proven}/{run}, as job 'compact' does after 'keep_hours'"
            )
    return told


def in_set_aside(lake: Lake, key: KeyRows, table: str, targets: Collection[str], wanted: Collection[str]) -> list[str]:
    """Files of earlier changelogs, which resets moved aside, with rows of a key, and of earlier refused rows, in words.

    Args:
        table: whose changelog they were.
        targets: that are written from it, whose refused rows were set aside.
        wanted: the key as those rows have it.
    """
    every = lake.set_aside()
    refused = {("refused", path_segment(name)) for name in targets}
    held: list[tuple[str, str]] = []
    for path in _files_below(every):
        moment, *below = path.strip("/").split("/")
        if below[:2] == ["changelogs", path_segment(table)]:
            if text := _held_in_earlier(every, path, key):
                held.append(("/".join((moment, *below[:2])), f"{path.lstrip('/')}: {text}"))
        elif tuple(below[:2]) in refused:
            part = TableLocation(f"{every.uri}/{'/'.join((moment, *below[:-1]))}", every.options)
            count = dict(_refused_below(part, wanted)).get(below[-1], 0)
            if count:
                held.append(("/".join((moment, *below[:2])), f"{path.lstrip('/')}: refused rows of the key ({count})"))
    return [
        f"{every.uri}/{text}, which a reset set aside: delete the folder {every.uri}/{folder}" for folder, text in held
    ]


def _held_in_earlier(every: TableLocation, path: str, key: KeyRows) -> str:
    """Return what a file holds of a key, in words; empty for nothing. It may have columns of an earlier declaration."""
    try:
        held = held_rows(every, path, key, upto=EVERY_BATCH)
    except ChangelogError:
        return "rows of another declaration, which may hold the key"
    if held.rows:
        return f"rows of the key ({held.rows})"
    if held.untold:
        return f"records in quarantine whose keys cannot be decoded ({held.untold}), which may be of it"
    return "a file without an end, which may hold it" if is_unended(every, path) else ""


def readers_of_same(binding: Binding, source: TopicSource, targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Other tables that are read from the topics of a table, or from what is written from it."""
    written = [target.checked for target in targets.values() if isinstance(target.checked, KafkaTable)]
    topics = [(table.settings.bootstrap_servers, name) for table in written for name in table.settings.topic]
    topics += [(source.kafka.settings.bootstrap_servers, name) for name in source.kafka.settings.topic]
    return tuple(
        name
        for name, other in binding.sources.items()
        if isinstance(other, TopicSource)
        and name != source.table.name
        and (_same_topics(source.kafka, other.kafka) or any(_reads(other.kafka, *topic) for topic in topics))
    )


def _same_topics(one: KafkaTable, other: KafkaTable) -> bool:
    """Return whether two tables are declared of one pattern, or one of a topic that matches the other's."""
    mine, its = one.settings, other.settings
    if mine.bootstrap_servers != its.bootstrap_servers or mine.topic_pattern is None:
        return False
    return mine.topic_pattern == its.topic_pattern or any(
        _reads(one, its.bootstrap_servers, name) for name in its.topic
    )


def _reads(table: KafkaTable, servers: str, topic: str) -> bool:
    settings = table.settings
    if settings.bootstrap_servers != servers:
        return False
    pattern = settings.topic_pattern
    return topic in settings.topic or (pattern is not None and re.fullmatch(pattern, topic) is not None)


def _refused_below(location: TableLocation, wanted: Collection[str]) -> list[tuple[str, int]]:
    """Files of refused rows in a folder, the table's or not, with how many rows of some keys each has."""

    system, folder = file_system(location)
    found = []
    for path in _files_below(location):
        if is_unended(location, path):
            continue
        with system.open_input_file(f"{folder}{path}") as stream:
            file = open_parquet(stream)
            if set(file.schema_arrow.names) != set(COLUMNS):
                continue
            texts = (text for part in file.iter_batches(columns=[_KEY]) for text in part.column(0).to_pylist())
            count = sum(_canonical(text) in wanted for text in texts)
        if count:
            found.append((path, count))
    return found


def _files_below(location: TableLocation) -> Iterator[str]:
    """Data files in a folder and those below it."""
    from pyarrow import fs

    system, folder = file_system(location)
    for item in system.get_file_info(fs.FileSelector(folder or "/", allow_not_found=True, recursive=True)):
        path = item.path.removeprefix(folder)
        if item.is_file and path.endswith(".parquet") and "_delta_log" not in path.split("/"):
            yield path


def _texts(kept: pa.Table) -> Iterator[str]:
    yield from kept[_KEY].to_pylist()


def _canonical(key: str) -> str:
    return json.dumps(json.loads(key, parse_float=str), sort_keys=True)
