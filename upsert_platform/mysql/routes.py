"""Routes: which topic the rows of a table go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upsert_platform.mysql.names import TablePattern


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of ``route``.

    Attributes:
        sources: patterns of tables.
        sink: name of the topic.
        symbol: what stands in `sink` for the table's own name; empty if nothing does.
    """

    sources: tuple[TablePattern, ...]
    sink: str
    symbol: str = ""

    def topic(self, schema: str, table: str) -> str | None:
        """The topic of a table, or None if the route is not for it."""
        if not any(pattern.matches(schema, table) for pattern in self.sources):
            return None
        return self.sink.replace(self.symbol, table) if self.symbol else self.sink


def topics(routes: Sequence[Route], schema: str, table: str) -> tuple[str, ...]:
    """Topics of a table: one for each route that is for it, or ``schema.table`` if none is."""
    found = dict.fromkeys(topic for route in routes if (topic := route.topic(schema, table)) is not None)
    return tuple(found) or (f"{schema}.{table}",)
