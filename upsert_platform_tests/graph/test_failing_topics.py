"""A topic whose last check failed is read by no request that leaves that check out, until the check passes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from upsert_platform import testing
from upsert_platform.core.destination import Verdict
from upsert_platform_tests.graph.test_blocking_quarantine import Shop

TABLE = (
    "CREATE TABLE {0} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',"
    " 'topic' = '{1}', 'properties.bootstrap.servers' = '${{BROKERS}}', 'key.format' = 'json', 'value.format' = 'json'"
    " {2});"
)
STORE = """
CREATE TABLE served (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
INSERT INTO copies SELECT * FROM users;
INSERT INTO more SELECT * FROM others;
INSERT INTO served SELECT * FROM both;
"""


@pytest.fixture
def blocking(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "true")


@pytest.fixture
def shop(tmp_path: Path, blocking: str) -> Iterator[Shop]:
    option = f", 'check.last-value-per-key.blocking' = '{blocking}'"
    tables = [TABLE.format("users", "users", ""), TABLE.format("others", "others", "")]
    tables += [TABLE.format("copies", "copies", option), TABLE.format("more", "more", option)]
    tables += [TABLE.format("both", "copies;more", ""), TABLE.format("feed", "copies", "")]
    (tmp_path / "shop.sql").write_text("\n".join([*tables, STORE]), "utf-8")
    with testing.project(tmp_path) as project:
        project.send("users", [{"id": 1, "name": "a"}])
        project.send("others", [{"id": 50, "name": "o"}])
        for _ in range(2):
            assert project.sync().success
        found = Shop(project)
        found.look()
        yield found


def judge(shop: Shop, *, passed: bool) -> None:
    """Records that the last check of `copies` compared every row."""
    hop = shop.project.platform.destination_hop("copies", run="test")
    state = hop.plan().state
    detail = "" if passed else "missing 0, extra 0, stale 1"
    hop.destination.record_verdict(
        Verdict(
            state.applied_batch, passed, True, datetime.now(UTC), detail, changelog_id=state.changelog_id,
            table_id=state.table_id,
        )
    )  # fmt: skip


def test_new_offsets_of_a_topic_whose_check_failed_wait(shop: Shop) -> None:
    shop.project.send("feed", [{"id": 2, "name": "b"}])
    judge(shop, passed=False)
    found = shop.look()
    assert found.run_requests == []
    assert "both: not read, the last check of table 'copies', which writes its topic, failed (missing 0, extra 0" in (
        found.skip_message
    )
    # Another table that writes the topic goes on, and does not take the changelog of the topic with it.
    shop.project.send("others", [{"id": 51, "name": "p"}])
    assert shop.asked() == {"changelogs/others", "tables/more"}
    # The table's own records bring its check into the run: that decides.
    shop.project.send("users", [{"id": 3, "name": "c"}])
    assert {"changelogs/users", "tables/copies", "changelogs/both"} <= shop.asked()
    judge(shop, passed=True)
    assert "changelogs/both" in shop.asked()


@pytest.mark.parametrize("blocking", ["false"], indirect=True)
def test_a_check_that_does_not_block_holds_no_offsets_back(shop: Shop) -> None:
    shop.project.send("feed", [{"id": 2, "name": "b"}])
    judge(shop, passed=False)
    assert shop.asked() == {"changelogs/both", "tables/served"}
