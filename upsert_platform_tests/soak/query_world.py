"""A world with a topic of each kind that queries read: tables, versions, collections."""

from __future__ import annotations

import duckdb

from upsert_platform_tests.engine.test_temporal import Rates, Record
from upsert_platform_tests.engine.test_unnest import Boxes

_SINCE = ("TIMESTAMP(3)", "TIMESTAMP(3) METADATA FROM 'timestamp'")


class Everything(Rates, Boxes):
    """Tables of a world, a versioned topic `rates` and a topic `boxes` of collections."""

    def __post_init__(self) -> None:
        self.since = self.rng.choice(_SINCE)
        super().__post_init__()
        self.rows["rates"] = []

    def change(self, name: str, count: int) -> None:
        """Appends a batch of random changes to a changelog."""
        match name:
            case "rates":
                self.rate(count // 2)
            case "boxes":
                self.fill(count)
            case _:
                super().change(name, count)

    def valid(self, uid: object, moment: object, *, of_record: bool = False) -> Record | None:
        """The version of a key at a moment; a delete has the time of its record where that is the event time."""
        return super().valid(uid, moment, of_record=self.since != _SINCE[0])  # type: ignore[arg-type]

    def snapshots(self) -> duckdb.DuckDBPyConnection:
        """A database with what the topics end with; versions are left to a loop over their records."""
        listed = self.rows["boxes"]
        self.rows["boxes"] = [
            {**row, **{name: list(row[name].items()) if row[name] is not None else None for name in ("sizes", "bag")}}
            for row in listed
        ]
        try:
            return super().snapshots()
        finally:
            self.rows["boxes"] = listed
