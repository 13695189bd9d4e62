"""The Delta table of a query: its result as a changelog, its operators' state, and how far its inputs are in them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.store import ChangelogStore, Head, LiveFile
from upsert_platform.errors import ChangelogError, SourceLocation
from upsert_platform.model import Column, Options, Table
from upsert_platform.plan import Query

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.queries.results import Result
    from upsert_platform.queries.stages import Stage
    from upsert_platform.queries.state import StateFile

_PLAN_PROPERTY: Final = "upsert.query.plan"
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
    """What tells plans apart: two of the same keep the same state and give the same result."""
    return hashlib.sha256(f"{_LAYOUT}\n{query.key!r}\n{query.plan!r}".encode()).hexdigest()[:32]


class QueryStore(ChangelogStore):
    """Reads and appends the table of a query.

    Args:
        uri: of the Delta table; a path, or a URI that both Spark and delta-rs open.
    """

    def __init__(self, uri: str, query: Query) -> None:
        super().__init__(uri, query_table(query), mode="upsert" if query.key else "append")
        self.query = query

    def result(self) -> Result:
        """What the last stage writes."""
        from upsert_platform.queries.results import Result

        return Result(self.query.name, self.query.plan.fields, self.query.key)

    def stages(self) -> tuple[Stage, ...]:
        """How the plan is carried out."""
        from upsert_platform.queries.stages import plan_stages

        return plan_stages(self.query.plan, self.result())

    def head(self) -> Head | None:
        """The state after the last commit, or None when the query has no table yet. No JVM.

        Raises:
            ChangelogError: the table holds the result of another plan.
        """
        found = super().head()
        if found is None:
            return None
        delta = self._opened()
        kept = delta.metadata().configuration.get(_PLAN_PROPERTY)
        if kept != fingerprint(self.query):
            raise ChangelogError(
                f"query '{self.query.name}' was changed: its table at {self.uri} holds the result of another plan. Run"
                " the job 'rebuild' to compute it anew, or take the change back"
            )
        return found

    def buckets(self) -> int:
        """Into how many parts state is divided."""
        return int(self._opened().metadata().configuration.get(_BUCKETS_PROPERTY, BUCKETS))

    def state_files(self) -> Mapping[tuple[str, int], tuple[StateFile, ...]]:
        """Committed state, by name of the state and bucket. No JVM."""
        from upsert_platform.queries.state import KIND_STATE, StateFile

        found: dict[tuple[str, int], list[StateFile]] = {}
        for item in self.files():
            if item.least_kind == KIND_STATE:
                name, bucket, _ = item.path.split("-", 2)
                found.setdefault((name, int(bucket)), []).append(StateFile(item.path, item.last_batch or 0, item.size))
        return {place: tuple(files) for place, files in found.items()}

    def result_files(self) -> list[LiveFile]:
        """Files of the result's changes and of the accounting. No JVM."""
        from upsert_platform.queries.state import KIND_STATE

        return [item for item in self.files() if item.least_kind != KIND_STATE]

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        fields = {field.name: field for field in super()._schema()}
        for stage in self.stages():
            for state in stage.states:
                fields |= {field.name: field for field in state.stored}
        return pa.schema(list(fields.values()))

    def _properties(self) -> dict[str, str]:
        return {_PLAN_PROPERTY: fingerprint(self.query), _BUCKETS_PROPERTY: str(BUCKETS)}
