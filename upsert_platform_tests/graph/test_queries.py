"""INSERT INTO of queries that need more than one row at a time: from topics to tables by the jobs, on real servers."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import Stack, checks_of, metadata_of
from upsert_platform_tests.referee.judging import records_of, tablestore_table

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]

# The statement of the vendors' documents, and a second query that joins its input with an upsert topic.
PAGEVIEWS = """
CREATE TABLE pageviews_per_region (
  user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-per-region', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE pageviews (
  user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING, proc AS PROCTIME(),
  WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}-views', 'format' = 'json',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}'
);
INSERT INTO pageviews_per_region
SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM pageviews GROUP BY user_region;
CREATE VIEW views_per_user AS
SELECT user_id, COUNT(*) AS views, MAX(page_id) AS last_page FROM pageviews WHERE page_id % 2 = 0 GROUP BY user_id;
CREATE TABLE users_views (
  user_id BIGINT, name STRING, views BIGINT, last_page BIGINT, PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_views',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}', 'auto.create' = 'true'
);
INSERT INTO users_views
SELECT u.user_id, UPPER(u.name), v.views, v.last_page
FROM users u LEFT JOIN views_per_user v ON u.user_id = v.user_id WHERE u.region <> 'test';
CREATE TABLE named_views (
  user_id BIGINT, page_id BIGINT, name STRING, PRIMARY KEY (user_id, page_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_named',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}', 'auto.create' = 'true'
);
INSERT INTO named_views
SELECT v.user_id, v.page_id, u.name
FROM pageviews AS v LEFT JOIN users_serving FOR SYSTEM_TIME AS OF v.proc AS u ON v.user_id = u.user_id;
"""


class Pageviews:
    """Random pageviews and what they add up to, counted here."""

    def __init__(self, stack: Stack, topic: str) -> None:
        self.stack = stack
        self.topic = topic
        self.random = random.Random(7)
        self.rows: list[dict[str, Any]] = []

    def produce(self, count: int) -> None:
        """Sends more of them."""
        producer = Producer({"bootstrap.servers": self.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
        for _ in range(count):
            row = {
                "user_id": self.random.randrange(60),
                "page_id": self.random.randrange(1000),
                "viewtime": "2024-05-01 10:00:00",
                "user_region": self.random.choice(["eu", "us", "asia"]),
            }
            self.rows.append(row)
            producer.produce(self.topic, value=json.dumps(row).encode())
        assert producer.flush(30) == 0

    def per_region(self) -> dict[str, tuple[int, int]]:
        """Region to views and viewers."""
        views = Counter(row["user_region"] for row in self.rows)
        viewers = defaultdict(set)
        for row in self.rows:
            viewers[row["user_region"]].add(row["user_id"])
        return {region: (count, len(viewers[region])) for region, count in views.items()}

    def per_user(self, users: dict[int, dict[str, Any]]) -> list[list[Any]]:
        """Users outside the test region with their views of even pages."""
        found = []
        for user, row in sorted(users.items()):
            if row["region"] in (None, "test"):
                continue
            pages = [view["page_id"] for view in self.rows if view["user_id"] == user and view["page_id"] % 2 == 0]
            name = row["name"].upper() if row["name"] is not None else None
            found.append([user, name, len(pages) or None, max(pages, default=None)])
        return found


def _values(stack: Stack, topic: str) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a topic in the order of each partition."""
    for record in records_of(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], topic):
        yield json.loads(record.key or b""), json.loads(record.value) if record.value is not None else None


def test_queries_follow_their_topics_to_their_tables(stack: Stack, make_topic: Callable[..., str]) -> None:
    make_topic(name=f"{stack.topic}-views", partitions=2)
    stack.declare(warehouse=None)
    sql = stack.project / "pageviews.sql"
    sql.write_text(PAGEVIEWS.format(topic=stack.topic, table=stack.table), "utf-8")
    pageviews = Pageviews(stack, f"{stack.topic}-views")

    def regions() -> dict[str, tuple[int, int]]:
        return {
            key["user_region"]: (value["pv"], value["uv"])
            for key, value in _values(stack, f"{stack.topic}-per-region")
            if value is not None
        }

    def users() -> list[list[Any]]:
        columns = {"user_id": "BIGINT", "name": "STRING", "views": "BIGINT", "last_page": "BIGINT"}
        return sorted(
            list(row) for row in tablestore_table(stack.variables, f"{stack.table}_views", columns, ("user_id",))
        )

    named: dict[tuple[int, int], str | None] = {}

    def arrive(views: list[dict[str, Any]]) -> None:
        """What views show is what the table of users held by then: it is written before."""
        rows = stack.users.rows
        named.update({(row["user_id"], row["page_id"]): rows.get(row["user_id"], {}).get("name") for row in views})

    def stored_names() -> dict[tuple[int, int], str | None]:
        columns = {"user_id": "BIGINT", "page_id": "BIGINT", "name": "STRING"}
        found = tablestore_table(stack.variables, f"{stack.table}_named", columns, ("user_id", "page_id"))
        return {(user, page): name for user, page, name in found}

    stack.produce(stack.users.first_wave(40))
    pageviews.produce(300)
    done = stack.run()
    assert done.success
    arrive(pageviews.rows)
    assert stored_names() == named
    assert regions() == pageviews.per_region()
    assert users() == pageviews.per_user(stack.users.rows)
    shown = metadata_of(done, "queries", "pageviews_per_region")
    assert shown["changes_read"] == 300
    assert shown["batches_behind"] == 0
    lineage = shown_lineage(stack.definitions(), "pageviews_per_region")
    assert lineage["uv"] == [("changelogs/pageviews", "user_id")]
    assert shown_lineage(stack.definitions(), "named_views")["name"] == [("tables/users_serving", "name")]
    assert all(checks_of(done).values())

    again = stack.run()
    assert again.success
    assert metadata_of(again, "queries", "users_views")["batches"] == 0

    assert stack.run("compact").success
    stack.produce(stack.users.second_wave(40))
    pageviews.produce(100)
    assert stack.run().success
    assert regions() == pageviews.per_region()
    assert users() == pageviews.per_user(stack.users.rows)
    arrive(pageviews.rows[300:])
    assert stored_names() == named
    assert stack.run("verify").success

    # Another statement for the same table: refused until the rebuild, which writes what differs.
    changed = sql.read_text("utf-8").replace("COUNT(*), COUNT(DISTINCT user_id)", "COUNT(*), MAX(user_id)")
    sql.write_text(changed, "utf-8")
    assert not stack.run().success
    assert stack.run("rebuild").success
    assert stack.run().success
    highest = {region: (pv, _highest(pageviews, region)) for region, (pv, _) in pageviews.per_region().items()}
    assert regions() == highest


def _highest(pageviews: Pageviews, region: str) -> int:
    return max(row["user_id"] for row in pageviews.rows if row["user_region"] == region)


def shown_lineage(definitions: dg.Definitions, query: str) -> dict[str, list[tuple[str, str]]]:
    """Column lineage of a query's asset: column to (asset, column)."""
    key = dg.AssetKey(["queries", query])
    found = definitions.resolve_asset_graph().get(key).metadata["dagster/column_lineage"]
    deps = getattr(found, "value", found).deps_by_column
    return {
        name: [(item.asset_key.to_user_string(), item.column_name) for item in items] for name, items in deps.items()
    }
