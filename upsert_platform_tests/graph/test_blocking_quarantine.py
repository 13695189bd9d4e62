"""A table whose changelog has a blocking check that fails is written by no run, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.discard import discard

pytestmark = pytest.mark.whole_runs

SQL = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json', ${LIMIT} 'check.quarantine-below.blocking' = '${BLOCKING}');
CREATE TABLE orders (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
CREATE TABLE joined (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
CREATE TABLE bought (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
INSERT INTO copies SELECT * FROM users;
INSERT INTO bought SELECT * FROM orders;
INSERT INTO joined SELECT o.id, u.name FROM orders AS o JOIN users AS u ON o.id = u.id;
"""


class Shop:
    """A project with looks of its sensor, each with what it remembers of the one before."""

    def __init__(self, project: testing.ProjectUnderTest) -> None:
        self.project = project
        self._cursor: str | None = None

    def look(self) -> Any:
        found = self.project.definitions
        with dg.build_sensor_context(
            instance=self.project.instance,
            cursor=self._cursor,
            definitions=found,
            resources={"platform": self.project.platform},
        ) as context:
            result = found.resolve_sensor_def("new_offsets").evaluate_tick(context)
        self._cursor = result.cursor
        return result

    def asked(self) -> set[str]:
        return {key.to_user_string() for item in self.look().run_requests for key in item.asset_selection}

    def ids(self, table: str) -> list[int]:
        return [row["id"] for row in self.project.rows(table)]


@pytest.fixture
def options(request: pytest.FixtureRequest) -> tuple[str, str]:
    return getattr(request, "param", ("'quarantine.fail-count' = '1',", "true"))


@pytest.fixture
def shop(tmp_path: Path, options: tuple[str, str]) -> Iterator[Shop]:
    limit, blocking = options
    (tmp_path / "shop.sql").write_text(SQL.replace("${LIMIT}", limit).replace("${BLOCKING}", blocking), "utf-8")
    with testing.project(tmp_path) as project:
        for table in ("users", "orders"):
            project.send(table, [{"id": 1, "name": "a"}])
        assert project.sync().success
        project.send("users", [{"id": 2, "name": "b"}])
        project.send_record("users", key=b'{"id": 3}', value=b"{")
        yield Shop(project)


def test_the_sensor_asks_for_no_table_alone_that_a_blocking_check_has_stopped(shop: Shop) -> None:
    assert not shop.project.sync(raise_on_error=False).success
    assert (shop.ids("copies"), shop.ids("joined")) == ([1], [1])
    found = shop.look()
    assert found.run_requests == []
    assert "copies, joined: not written, the quarantine of 'users' has reached 'quarantine.fail-count' = '1'" in (
        found.skip_message
    )
    shop.project.send("orders", [{"id": 2, "name": "x"}])
    # What is made of the other topic alone goes on; a run for it has no check of the changelog that stops `joined`.
    assert shop.asked() == {"changelogs/orders", "tables/bought"}
    store = changelog_of(shop.project.platform.binding().sources["users"], shop.project.platform.lake)
    discard(store, by="test", why="nobody needs it", run="test")
    assert {"tables/copies", "tables/joined", "queries/joined"} <= shop.asked()


@pytest.mark.parametrize(
    "options",
    [("'quarantine.fail-count' = '1',", "false"), ("", "true"), ("'quarantine.fail-count' = '2',", "true")],
    indirect=True,
    ids=["warns", "no limit", "below"],
)
def test_a_check_that_stops_no_run_stops_no_request(shop: Shop) -> None:
    job = shop.project.definitions.resolve_job_def("sync")
    chosen = [dg.AssetKey(["changelogs", "users"])]
    assert job.execute_in_process(instance=shop.project.instance, asset_selection=chosen).success
    assert shop.asked() == {"tables/copies", "tables/joined", "queries/joined"}


@pytest.mark.parametrize(("options", "stops"), [(("'quarantine.fail-count' = '1',", "true"), True),
                                                (("'quarantine.fail-count' = '1',", "false"), False)],
                         indirect=["options"])  # fmt: skip
def test_continuous_mode_writes_no_table_that_a_blocking_check_stops(shop: Shop, *, stops: bool) -> None:
    config = {"last_seconds": 4.0, "report_every_seconds": 2.0, "max_delay_seconds": 0.3}
    assert shop.project.run("stream", config={"ops": {"loop": {"config": config}}}).success
    store = changelog_of(shop.project.platform.binding().sources["users"], shop.project.platform.lake)
    head = store.head()
    assert head is not None
    accounts = store.accounts(after=0, upto=head.batch)
    read = sum(item.records for found in accounts.values() for item in found if item.topic != ACCOUNT_TOPIC)
    assert read == 3, "records are landed all the same"
    assert shop.ids("copies") == ([1] if stops else [1, 2])
