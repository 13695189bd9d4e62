"""Makes page views, and counts plainly what the tables that follow from the topics should hold."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from upsert_platform.demo.users import REGIONS
from upsert_platform.demo.users import TOPIC as USERS_TOPIC
from upsert_platform.referee.stores import maxcompute_rows, tablestore_rows
from upsert_platform.referee.topic import consume

TOPIC: Final = "pageviews"
PAGES: Final = 40
Rows = list[list[Any]]


def _now() -> datetime:
    """Milliseconds without a zone, as the column is; a later demo goes on after the views of an earlier one."""
    at = datetime.now()  # noqa: DTZ005 - as the column
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


@dataclass
class Pageviews:
    """Makes views of pages, each a millisecond after the one before."""

    seed: int = 7
    at: datetime = field(default_factory=_now)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def wave(self, count: int, *, most_users: int) -> Iterator[tuple[None, bytes]]:
        """So many views by users 1 to `most_users`; some of whom do not exist."""
        for _ in range(count):
            self.at += timedelta(milliseconds=1)
            view = {
                "user_id": self._random.randint(1, most_users),
                "page_id": self._random.randint(1, PAGES),
                "viewtime": self.at.isoformat(sep=" ", timespec="milliseconds"),
                "user_region": self._random.choice(REGIONS),
            }
            yield None, json.dumps(view).encode()


def counted(views: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the expected rows of `regions_serving`: views and viewers per region."""
    found: dict[str, list[int]] = {}
    for view in views:
        found.setdefault(view["user_region"], []).append(view["user_id"])
    return [[region, len(users), len(set(users))] for region, users in sorted(found.items())]


def looked_at_last(users: Mapping[int, Mapping[str, Any]], views: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the expected rows of `last_views`: per existing user the last page viewed and its time in nanoseconds."""
    last: dict[int, Mapping[str, Any]] = {}
    for view in views:
        if view["viewtime"] > last.get(view["user_id"], {"viewtime": ""})["viewtime"]:
            last[view["user_id"]] = view
    start = datetime(1970, 1, 1)  # noqa: DTZ001 - the column has no zone
    found: Rows = []
    for user, row in sorted(users.items()):
        if user in last:
            at = datetime.fromisoformat(last[user]["viewtime"]) - start
            found.append([user, row["name"], last[user]["page_id"], at // timedelta(milliseconds=1) * 1_000_000])
    return found


def expected(bootstrap_servers: str) -> tuple[Rows, Rows]:
    """Return the expected rows of both tables, computed from all records of the topics, those of earlier demos
    included.
    """
    config = {"bootstrap.servers": bootstrap_servers}
    views = [json.loads(record.value) for record in consume(config, [TOPIC]) if record.value is not None]
    users: dict[int, dict[str, Any]] = {}
    for record in consume(config, [USERS_TOPIC]):
        key = json.loads(record.key or b"{}")["user_id"]
        users.pop(key, None)
        if record.value is not None:
            users[key] = json.loads(record.value)
    return counted(views), looked_at_last(users, views)


def tables(variables: Mapping[str, str]) -> tuple[Rows, Rows]:
    """Rows of `regions_serving` and `last_views` as the vendors' clients read them, ordered by key."""
    from odps import ODPS
    from tablestore import OTSClient

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    serving = OTSClient(*(variables[f"UPSERT_TABLESTORE_{name}"] for name in names), logger_name=None)
    columns = {"user_region": "STRING", "pv": "BIGINT", "uv": "BIGINT"}
    regions = list(tablestore_rows(serving, "regions", columns, ("user_region",)))
    id_, key, project = (variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in ("ACCESS_ID", "ACCESS_KEY", "PROJECT"))
    warehouse = ODPS(id_, key, project, endpoint=variables["UPSERT_MAXCOMPUTE_ENDPOINT"])
    columns = {"user_id": "BIGINT", "name": "STRING", "page_id": "BIGINT", "viewtime": "TIMESTAMP(3)"}
    return regions, sorted(maxcompute_rows(warehouse, "last_views", columns))
