"""Makes page views, and knows by plain counting what the tables that follow from them should hold."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from upsert_platform.demo.users import REGIONS

TOPIC: Final = "pageviews"
PAGES: Final = 40
_EPOCH: Final = datetime(2026, 11, 1, 12)  # noqa: DTZ001 - the column is a TIMESTAMP without a zone


@dataclass
class Pageviews:
    """The truth beside the producer.

    Attributes:
        views: every view that was produced, in order.
    """

    seed: int = 7
    views: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def wave(self, count: int, *, most_users: int) -> Iterator[tuple[None, bytes]]:
        """So many views by users 1 to `most_users`; some of whom do not exist."""
        for _ in range(count):
            at = _EPOCH + timedelta(milliseconds=len(self.views))
            view: dict[str, Any] = {
                "user_id": self._random.randint(1, most_users),
                "page_id": self._random.randint(1, PAGES),
                "viewtime": at,
                "user_region": self._random.choice(REGIONS),
            }
            self.views.append(view)
            shown = at.isoformat(sep=" ", timespec="milliseconds")
            yield None, json.dumps({**view, "viewtime": shown}).encode()

    def regions(self) -> list[list[Any]]:
        """Per region its views and viewers."""
        found: dict[str, list[int]] = {}
        for view in self.views:
            found.setdefault(view["user_region"], []).append(view["user_id"])
        return [[region, len(users), len(set(users))] for region, users in sorted(found.items())]

    def last_views(self, users: Mapping[int, Mapping[str, Any]]) -> list[list[Any]]:
        """Per user that there is, the page looked at last, and when, in nanoseconds since 1970."""
        last = {view["user_id"]: view for view in self.views}
        start = datetime(1970, 1, 1)  # noqa: DTZ001 - as above
        found = []
        for user, row in sorted(users.items()):
            if user in last:
                at = (last[user]["viewtime"] - start) // timedelta(milliseconds=1) * 1_000_000
                found.append([user, row["name"], last[user]["page_id"], at])
        return found


def tables(variables: Mapping[str, str]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Rows of `regions_serving` and `last_views` as the vendors' clients read them, ordered by key."""
    from odps import ODPS
    from tablestore import OTSClient

    from upsert_platform.referee.stores import maxcompute_rows, tablestore_rows

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    serving = OTSClient(*(variables[f"UPSERT_TABLESTORE_{name}"] for name in names), logger_name=None)
    columns = {"user_region": "STRING", "pv": "BIGINT", "uv": "BIGINT"}
    regions = list(tablestore_rows(serving, "regions", columns, ("user_region",)))
    id_, key, project = (variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in ("ACCESS_ID", "ACCESS_KEY", "PROJECT"))
    warehouse = ODPS(id_, key, project, endpoint=variables["UPSERT_MAXCOMPUTE_ENDPOINT"])
    columns = {"user_id": "BIGINT", "name": "STRING", "page_id": "BIGINT", "viewtime": "TIMESTAMP(3)"}
    return regions, sorted(maxcompute_rows(warehouse, "last_views", columns))
