"""The Delta table of a query: its result as a changelog, its operators' state, and how far its inputs are in them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.evolution import add_columns, missing_columns
from upsert_platform.changelog.live_files import LiveFile, live_files
from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ChangelogError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.plan import Query, lets_go

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from upsert_platform.engine.results import Result
    from upsert_platform.engine.stages import Stage
    from upsert_platform.engine.state import StateFile

PLAN: Final = "(plan)"
"""Beside the inputs' ids in the position of a commit: the fingerprint of the plan whose state it holds."""
_BUCKETS_PROPERTY: Final = "upsert.query.buckets"
BUCKETS: Final = 8
"""How many parts the state of a new query has; fixed for the life of its table."""
_LAYOUT: Final = "1"
"""Changed when the state of a plan is kept in another way."""


def query_table(query: Query) -> Table:
    """A query's result as the declared table that its readers see."""
    columns = tuple(Column(field.name, field.type) for field in query.plan.fields)
    return Table(query.name, columns, query.key, Options({}), SourceLocation(query.name))


def fingerprint(query: Query) -> str:
    """Return the identity of a plan: two plans with the same one share state and result."""
    return hashlib.sha256(f"{_LAYOUT}\n{query.key!r}\n{query.plan!r}".encode()).hexdigest()[:32]


class QueryStore(ChangelogStore):
    """Reads and appends the table of a query.

    Args:
        location: of the Delta table; a path by itself will do.
        any_plan: the table may hold the result of another plan, which a rebuild replaces.
        new_buckets: into how many parts state is divided, if the table is made.
    """

    keeps_key = False  # the fingerprint of the plan tells another key
    merges_files = False

    def __init__(
        self, location: TableLocation | str, query: Query, *, any_plan: bool = False, new_buckets: int | None = None
    ) -> None:
        super().__init__(location, query_table(query), mode="upsert" if query.key else "append")
        self.query = query
        self._any_plan = any_plan
        self._new_buckets = BUCKETS if new_buckets is None else new_buckets

    @cached_property
    def fingerprint(self) -> str:
        """That of the query."""
        return fingerprint(self.query)

    def result(self) -> Result:
        """Return the output of the last stage."""
        from upsert_platform.engine.results import Result

        return Result(self.query.name, self.query.plan.fields, self.query.key, lets_go(self.query))

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of the plan."""
        return self._stages

    @cached_property
    def _stages(self) -> tuple[Stage, ...]:
        from upsert_platform.engine.stages import plan_stages

        mark = f"_{self.fingerprint[:6]}"
        return plan_stages(self.query.plan, self.result(), mark=mark, ttl=self.query.state_ttl)

    def _head_in(self, delta: DeltaTable) -> Head:
        """As of any changelog; a table that holds the result of another plan is refused."""
        found = super()._head_in(delta)
        if not self._any_plan and found.batch and found.positions.topic_ids.get(PLAN) != self.fingerprint:
            raise ChangelogError(
                f"query '{self.query.name}' was changed: its table at {self.uri} holds the result of another plan, of"
                " another statement or of an earlier version's rules. Run the job 'rebuild', which computes it anew and"
                " writes the difference, or take the change back"
            )
        return found

    def add_missing_columns(self) -> None:
        """Adds the columns that the result or the state of this plan has and the table lacks.

        Raises:
            ChangelogError: a column has another type there.
        """
        import pyarrow as pa

        delta = self.opened()
        missing_columns(delta, self.table)
        known = pa.schema(delta.schema().to_arrow()).names
        lacking = [field for field in self._schema() if field.name not in known]
        if lacking:
            add_columns(delta, lacking, metadata=self.commit_metadata(delta))

    def buckets(self) -> int:
        """Into how many parts state is divided."""
        return self.layout()[0]

    def state_files(self) -> Mapping[tuple[str, int], tuple[StateFile, ...]]:
        """Committed state, by name of the state and bucket; none where there is no table. No JVM."""
        return self.layout()[1] if self._delta() is not None else {}

    def layout(self) -> tuple[int, Mapping[tuple[str, int], tuple[StateFile, ...]]]:
        """`buckets` and `state_files` of one version of the table. No JVM.

        Raises:
            ChangelogError: there is no table.
        """
        from upsert_platform.engine.state import KIND_STATE, StateFile

        delta = self.opened()
        found: dict[tuple[str, int], list[StateFile]] = {}
        for item in live_files(delta):
            if item.least_kind == KIND_STATE:
                name, bucket, _ = item.path.split("-", 2)
                file = StateFile(item.path, item.last_batch or 0, item.size, item.written or 0, item.rows or 0)
                found.setdefault((name, int(bucket)), []).append(file)
        buckets = int(delta.metadata().configuration.get(_BUCKETS_PROPERTY, BUCKETS))
        return buckets, {place: tuple(files) for place, files in found.items()}

    def result_files(self) -> list[LiveFile]:
        """Files of the result's changes and of the accounting. No JVM."""
        from upsert_platform.engine.state import KIND_STATE

        return [item for item in self.files() if item.least_kind != KIND_STATE]

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        fields = {field.name: field for field in super()._schema()}
        for stage in self.stages():
            for state in stage.states:
                stored = state.stored_with(touched=bool(stage.ttls))
                fields |= {field.name: field for field in stored}
        return pa.schema(list(fields.values()))

    def _properties(self) -> dict[str, str]:
        return {_BUCKETS_PROPERTY: str(self._new_buckets)}
