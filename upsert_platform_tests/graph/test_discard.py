"""Records that nobody needs leave the quarantine, with who said so; those that do not decode hold no others up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.quarantine import discarded, quarantined_count
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.cli.main import main
from upsert_platform.sync import replay as replays
from upsert_platform.sync.audit import Audit, audit_or_reason
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.replay_start import start_of
from upsert_platform.sync.replay_topic import replay_topic
from upsert_platform_tests.graph.stack import COLUMNS, Stack, checks_of
from upsert_platform_tests.graph.test_replay import names, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

STRICT = COLUMNS.replace("region STRING", "region DATE")
MENDED = ", 'value.json.ignore-parse-errors' = 'true'"
CUT = b'{"user_id":3,"name":"thr'


@pytest.fixture
def aside(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """One record in the table, and three in quarantine: two that are cut, and the last of which a date is wrong."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    stack.declare(warehouse=None, columns=STRICT)
    send(
        stack,
        (b'{"user_id":1}', b'{"user_id":1,"name":"one","region":"2026-11-01"}'),
        (b'{"user_id":3}', CUT),
        (b'{"user_id":4}', CUT),
        (b'{"user_id":2}', b'{"user_id":2,"name":"two","region":"nowhere"}'),
    )
    assert stack.run().success
    assert quarantined_count(store_of(stack)) == 3
    return stack


def store_of(stack: Stack) -> ChangelogStore:
    return changelog_of(stack.platform().binding().sources["users"], Lake(str(stack.lake)))


def quarantine(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["quarantine", *arguments])


def verdict(stack: Stack) -> tuple[bool, int, int]:
    found = audit_or_reason(stack.platform().binding().targets["users_serving"], Lake(str(stack.lake)))
    assert isinstance(found, Audit)
    return found.verdict.equal, found.verdict.equal_rows, found.verdict.open_keys + found.verdict.unknown


def test_discarded_records_are_told_and_not_asked_for_again(aside: Stack, spark: SparkSession) -> None:
    first, second, third = (f"{aside.topic}-0@{offset}" for offset in (1, 2, 3))
    assert quarantine("discard", "users", "--all").exit_code == 2, "why?"
    assert quarantine("discard", "users", "--reason", "tests").exit_code == 2, "which?"
    assert quarantine("discard", "users", first, "--all", "--reason", "tests").exit_code == 2
    missing = quarantine("discard", "users", first, f"{aside.topic}-0@0", "--reason", "tests")
    assert missing.exit_code == 1
    assert f"{aside.topic}-0@0 is not in the quarantine" in missing.output
    assert quarantined_count(store_of(aside)) == 3, "all of them or none"
    judged = verdict(aside)

    done = quarantine("discard", "users", first, first, "--reason", "a shop that was closed", "--by", "ann")
    assert done.output == "1 record discarded; batch 2\n"
    listed = quarantine("list", "users").output
    assert "users: 2 records could not be decoded, 1 more discarded (--discarded)" in listed
    assert first not in listed.split("\n", 1)[1]
    told = quarantine("list", "users", "--discarded").output
    assert all(part in told for part in (first, "ann", "a shop that was closed"))
    assert quarantine("discard", "users", first, "--reason", "again").exit_code == 1

    assert quarantine("discard", "users", "--all", "--reason", "sent anew").output == "2 records discarded; batch 3\n"
    assert quarantine("discard", "users", "--all", "--reason", "sent anew").exit_code == 0
    assert [f"{topic}-{partition}@{offset}" for (topic, partition, offset), _ in discarded(store_of(aside))] == [
        first, second, third,
    ]  # fmt: skip
    synced = aside.run()
    assert synced.success
    assert all(checks_of(synced).values())
    (below,) = [item for item in synced.get_asset_check_evaluations() if item.check_name == "quarantine_below"]
    assert (below.metadata["in_quarantine"].value, below.metadata["discarded"].value) == (0, 3)
    assert names(aside) == {1: "one"}
    assert verdict(aside) == judged, "nothing came of them, whoever looks"

    aside.declare(warehouse=None, columns=STRICT, source=MENDED)
    assert "nothing of 'users' is in quarantine" in quarantine("replay", "users").output
    assert aside.run("compact").success
    assert len(discarded(store_of(aside))) == 3, "kept in history"
    source, store = aside.platform().binding().sources["users"], store_of(aside)
    replay_topic(spark, source, store, start=start_of(), run="replay", dry_run=False)
    assert aside.run().success
    assert names(aside) == {1: "one", 2: "two"}, "whoever reads the topic again gets what decodes by now"
    assert [offset for (_, _, offset), _ in discarded(store_of(aside))] == [1, 2]
    assert quarantined_count(store_of(aside)) == 0


def test_records_that_do_not_decode_hold_no_others_up(
    aside: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside.declare(warehouse=None, columns=STRICT, source=MENDED)
    monkeypatch.setattr(replays, "MOST", 1)
    binding = aside.platform().binding()
    done = replays.replay_in_turn(spark, binding.sources["users"], store_of(aside), binding=binding, run="replay")
    assert (done.replayed, done.superseded, done.refused_count, len(done.refused)) == (1, 0, 2, 1)
    assert aside.run().success
    assert names(aside) == {1: "one", 2: "two"}
    assert quarantined_count(store_of(aside)) == 2
