"""Takes back what a wrong declaration did: the changelog goes aside, and tables forget what was applied to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.set_aside import is_there, set_aside
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.capabilities import Resets
from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import ChangelogError, DestinationError, UpsertPlatformError
from upsert_platform.kafka.modes import StartupMode
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync.binding import Binding, Target, changelog_of, query_store
from upsert_platform.sync.leased import leased

CHANGELOG: Final = "changelog"
QUERY: Final = "query"
REFUSED: Final = "refused rows"
_NOT_AGAIN: Final = (StartupMode.GROUP, StartupMode.LATEST)
"""Where a first batch starts behind records that were read before."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the lake that goes aside.

    Attributes:
        kind: `CHANGELOG`, `QUERY` or `REFUSED`.
        name: of the declared table.
        moved: where it was moved to; empty before that.
    """

    kind: str
    name: str
    location: TableLocation
    moved: str = ""


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A destination that is written anew.

    Attributes:
        applied: the batch that it holds; 0 if it holds none.
        drops: whether it is dropped, and not only its position forgotten.
    """

    name: str
    uri: str
    applied: int
    drops: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The effect of a reset, planned or done."""

    lake: tuple[LakeTable, ...]
    tables: tuple[WrittenTable, ...]

    @property
    def keeps_rows(self) -> tuple[str, ...]:
        """Tables that keep rows which may not be in the topic any more."""
        return tuple(item.name for item in self.tables if item.applied and not item.drops)


def reset(
    binding: Binding,
    lake: Lake,
    name: str,
    *,
    drop: bool,
    dry_run: bool,
    run: str,
    tell: Callable[[str], None] = lambda line: None,
) -> Reset:
    """Reset a table that inserts read, with all that is made of it, or one table that an insert writes.

    Of a table that is read, its changelog and the results of queries over it go aside, and the tables that are written
    from it forget what they have applied: the next sync reads the topic from where it starts, and writes every row
    again. Of a table that is written, the changelog stays. All of it happens under the leases of the tables.

    Args:
        drop: drop the tables that are written, too.
        dry_run: only find out what would be done.
        run: shown to whoever finds a table held.
        tell: is given a line when a lease has to be waited for.

    Raises:
        UpsertPlatformError: no insert reads or writes the table, or the records would not be read again.
        DestinationError: a table cannot be dropped, or would have its rows twice.
        LeaseHeldError: a run writes one of the tables.
    """
    found, targets = _lake_tables(binding, lake, name), _targets(binding, name)
    # By its files: a reset is also the remedy for a table that cannot be opened, and goes on where one was killed.
    present = [item for item in found if is_there(item.location)]
    with ExitStack() as held:
        opened = [(target, _opened(held, target, drop=drop)) for target in targets]
        tables = tuple(_written(destination, drop=drop) for _, destination in opened)
        if dry_run:
            return Reset(tuple(present), tables)
        leases = [held.enter_context(leased(item, owner=run, tell=tell)) for _, item in opened]
        for (_, destination), lease in zip(opened, leases, strict=True):
            assert isinstance(destination, Resets)
            destination.forget_applied(lease)
            if drop:
                destination.drop_table()
        moment = datetime.now(UTC)
        moved = [
            LakeTable(item.kind, item.name, item.location, set_aside(lake, item.location, moment=moment) or "")
            for item in present
        ]
    return Reset(tuple(moved), tables)


def _lake_tables(binding: Binding, lake: Lake, name: str) -> Iterator[LakeTable]:
    """Yield the parts of the lake that are set aside with a table."""
    if name in binding.sources:
        source = binding.sources[name]
        if isinstance(source, TopicSource) and source.kafka.settings.startup_mode in _NOT_AGAIN:
            mode = source.kafka.settings.startup_mode.value
            raise UpsertPlatformError(
                f"table '{name}' starts at 'scan.startup.mode' = '{mode}', so that its records would not be read again;"
                " declare 'earliest-offset' or 'timestamp', then reset it"
            )
        yield LakeTable(CHANGELOG, name, changelog_of(source, lake).location)
        for query, item in binding.queries.items():
            if name in item.query.tables:
                yield LakeTable(QUERY, query, query_store(item, lake).location)
    for target in _targets(binding, name):
        yield LakeTable(REFUSED, target.table.name, lake.refused(target.table.name))


def _targets(binding: Binding, name: str) -> Sequence[Target]:
    """The tables that are written from a table, or that table itself where it is written and nothing reads it."""
    if name in binding.sources:
        return [item for item in binding.targets.values() if name in item.insert.tables]
    if name in binding.targets:
        return [binding.targets[name]]
    known = ", ".join(dict.fromkeys([*binding.sources, *binding.targets])) or "none"
    raise UpsertPlatformError(f"no insert reads or writes a table '{name}'; there are: {known}")


def _opened(held: ExitStack, target: Target, *, drop: bool) -> Destination:
    destination = target.open()
    held.callback(destination.close)
    if not isinstance(destination, Resets):
        raise DestinationError(f"table '{target.table.name}': connector '{target.table.connector}' cannot be reset")
    refusal = destination.drop_refusal() if drop else None
    if refusal is not None:
        raise DestinationError(refusal)
    return destination


def _written(destination: Destination, *, drop: bool) -> WrittenTable:
    state = destination.state()
    if state.applied_batch and not drop and not destination.primary_key:
        raise DestinationError(
            f"table '{destination.name}' has no primary key, so that it would hold every row twice; drop it with it:"
            " --drop-target"
        )
    return WrittenTable(destination.name, destination.uri, state.applied_batch, drop)


def batch_of(binding: Binding, lake: Lake, table: LakeTable) -> int | None:
    """Return the last batch of a changelog or query that is to go aside; None where its declaration does not fit it."""
    if table.kind == REFUSED:
        return None
    try:
        head = binding.changelog(table.name, lake).head()
    except ChangelogError:
        return None
    return head.batch if head else None
