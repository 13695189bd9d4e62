"""The main job under load and kill -9: both tables equal what was produced, and every record is accounted for."""

from __future__ import annotations

import random
import time

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import total
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.soak.killing import pick, run_killed, run_timed
from upsert_platform_tests.soak.load import Load

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3000)]

FIRST_WAVE = 200_000
KEYS = 40_000
LATER_WAVES = (20_000, 60_000)
"""Records of a later wave, at least and at most."""
STEPS = ("", "changelogs__users", "tables__users_serving", "tables__users_warehouse", "any")
"""In which step each later wave is killed."""
BATCH = 25_000

MANY_KILLS = 10
MANY_FIRST = 5_000
MANY_KEYS = 800
MANY_WAVE = 1_500
MANY_BATCH = 400


def load_of(stack: Stack, seed: int, keys: int, *, malformed: float = 0.001) -> Load:
    """A load on the topic of the stack, with the stack's users as the truth."""
    bootstrap = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    return Load(bootstrap, stack.topic, stack.users, random.Random(seed), keys, malformed)


def compare(stack: Stack, load: Load) -> str:
    """Both tables against the truth, and the accounts against every record produced; a line about it."""
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    store = stack.platform().changelog_hop("users", run="soak").store
    head = store.head()
    assert head is not None
    accounts = store.accounts(after=0, upto=head.batch)
    assert sorted(accounts) == list(range(1, head.batch + 1))
    ranges = [item for number in sorted(accounts) for item in accounts[number]]
    for partition, offsets in load.sent.items():
        parts = [item for item in ranges if item.partition == partition and item.offsets]
        assert [item.start for item in parts] == [0, *(item.end for item in parts[:-1])]
        assert parts[-1].end == len(offsets)
    expected = load.expected(ranges)
    found = store.quarantined()
    places = list(zip(found[rows.PARTITION].to_pylist(), found[rows.OFFSET].to_pylist(), strict=True))
    assert len(places) == len(set(places))
    assert set(places) == expected.quarantined
    summed = total(ranges)
    assert (summed.records, summed.gaps, summed.kept, summed.superseded, summed.quarantined) == (
        (load.records, 0, expected.kept, expected.superseded, len(expected.quarantined))
    )
    return (
        f"{load.records} records in {head.batch} batches: {summed.kept} kept, {summed.superseded} superseded,"
        f" {summed.quarantined} of {load.bad} malformed in quarantine; {len(stack.users.rows)} users equal"
    )


def test_waves_with_kills_end_equal(stack: Stack, seed: int) -> None:
    """200,000 records; then waves of tens of thousands, each with a run killed at a random moment of a step."""
    stack.declare(source=f", 'batch.max-records' = '{BATCH}'")
    load = load_of(stack, seed, KEYS)
    load.produce(FIRST_WAVE)
    timeline = run_timed(stack)
    print("first wave", timeline, compare(stack, load))  # noqa: T201
    killed = 0
    for step in STEPS:
        load.produce(load.chance.randint(*LATER_WAVES))
        named = load.chance.choice(list(timeline.steps)) if step == "any" else step
        kill = run_killed(stack, *pick(timeline, load.chance, named))
        killed += kill.alive
        again = run_timed(stack)
        print(kill, "- again", again, compare(stack, load))  # noqa: T201
    assert killed >= len(STEPS) - 2
    run_timed(stack, "verify")


def test_many_kills_in_a_row_end_equal(stack: Stack, seed: int) -> None:
    """Every run is killed somewhere, over many small batches; the last one is left alone."""
    stack.declare(source=f", 'batch.max-records' = '{MANY_BATCH}'")
    load = load_of(stack, seed, MANY_KEYS, malformed=0.01)
    load.produce(MANY_FIRST)
    timeline = run_timed(stack)
    killed = 0
    started = time.monotonic()
    for _ in range(MANY_KILLS):
        load.produce(MANY_WAVE)
        kill = run_killed(stack, "", load.chance.uniform(2, timeline.seconds))
        killed += kill.alive
        print(kill)  # noqa: T201
    assert killed >= MANY_KILLS / 2
    again = run_timed(stack)
    print(f"{time.monotonic() - started:.0f} s", "last", again, compare(stack, load))  # noqa: T201
    run_timed(stack, "verify")
