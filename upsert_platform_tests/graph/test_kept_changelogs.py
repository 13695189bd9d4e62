"""Changelogs that the steps of a run look at one after the other."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from upsert_platform.changelog import kept_table, store
from upsert_platform.changelog.store import Positions
from upsert_platform.changelog.tables import TableLocation, open_table
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.sync import project_hops
from upsert_platform.sync.binding import changelog_of

TABLE = """
CREATE TABLE t{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 't{n}',
  'properties.bootstrap.servers' = '127.0.0.1:1', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE c{n} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'c{n}',
  'properties.bootstrap.servers' = '127.0.0.1:1', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO c{n} SELECT id FROM t{n};
"""


def platform_of(folder: Path, *, tables: int) -> PlatformResource:
    (folder / "project").mkdir()
    (folder / "project" / "t.sql").write_text("".join(TABLE.format(n=n) for n in range(tables)), "utf-8")
    return PlatformResource(
        project=str(folder / "project"),
        home=str(folder / "lake"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )


def test_a_run_opens_a_changelog_once_and_sees_each_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = platform_of(tmp_path, tables=1)
    source = platform.binding().sources["t0"]
    other = changelog_of(source, platform.lake)
    head = other.create()
    opened: list[str] = []

    def noted(location: TableLocation) -> object:
        opened.append(location.uri)
        return open_table(location)

    monkeypatch.setattr(kept_table, "open_table", noted)
    monkeypatch.setattr(store, "open_table", noted)
    platform.setup_for_execution(dg.build_init_resource_context())
    for batch in range(1, 4):
        opened.clear()
        after = other.append([], head=head, positions=Positions({"t0": {0: batch}}, {}), run="another")
        assert after is not None
        head = after
        by_others = len(opened)
        for _ in range(3):
            found = platform.changelog(source).head()
            assert found is not None
            assert (found.batch, found.positions.offsets) == (batch, {"t0": {0: batch}})
        assert len(opened) - by_others == (1 if batch == 1 else 0)
    platform.teardown_after_execution(dg.build_init_resource_context())
    assert platform.changelog(source) is not platform.changelog(source), "behind a run nothing is kept"


def test_a_run_keeps_a_bounded_number_of_changelogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_hops, "_CHANGELOGS", 2)
    platform = platform_of(tmp_path, tables=3)
    sources = platform.binding().sources
    platform.setup_for_execution(dg.build_init_resource_context())
    first, second = platform.changelog(sources["t0"]), platform.changelog(sources["t1"])
    assert platform.changelog(sources["t0"]) is first
    platform.changelog(sources["t2"])
    assert platform.changelog(sources["t0"]) is first
    assert platform.changelog(sources["t1"]) is not second, "the one that was looked at longest ago is closed"
    platform.teardown_after_execution(dg.build_init_resource_context())
