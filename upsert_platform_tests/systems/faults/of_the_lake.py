"""Faults of the lake and of tables: older copies, files that are gone, cut or changed, a full disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from upsert_platform_tests.systems.faults.world import World

FULL_DISK: Final = f"{__package__}.full_disk"


REGIONS: Final = """
CREATE TABLE regions (region STRING, people BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{place}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}');
INSERT INTO regions SELECT NULLIF(region, 'hangzhou'), COUNT(*) FROM users GROUP BY NULLIF(region, 'hangzhou');
"""
"""A query, which keeps state in the lake, and a row that its table refuses, which is kept there."""


def lake_restored(world: World, *, batches: int) -> None:
    """The lake is that of some batches ago: tables refuse it until they are equal to it again."""
    world.must()
    copy = world.copy()
    for _ in range(batches):
        world.wave(4)
        world.must()
    world.restore(copy)
    for _ in range(2):
        world.wave(4)
        assert not world.sync()
    assert sum("restored from an older copy" in text for text in world.told) == 4  # both tables, twice
    world.must("reconcile")
    world.wave(4)
    world.must()


def table_restored(world: World) -> None:
    """Both tables, with their control records, are those of two batches ago: the batches are applied again."""
    world.must()
    servers = world.stores
    copies = [world.copies / type(server).__module__.split(".")[-2] for server in servers]
    for server, copy in zip(servers, copies, strict=True):
        server.kill()
        shutil.copytree(server.data, copy)
        server.start()
    for _ in range(2):
        world.wave()
        world.must()
    for server, copy in zip(servers, copies, strict=True):
        server.kill()
        shutil.rmtree(server.data)
        shutil.copytree(copy, server.data)
        server.start()
    world.wave()
    world.must()
    world.must("verify")


def last(folder: Path, pattern: str) -> Path:
    """The newest file."""
    return max(folder.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


def cut(path: Path) -> None:
    """Leaves the first bytes."""
    path.write_bytes(path.read_bytes()[:50])


def change_bits(path: Path) -> None:
    """Changes one bit in the middle of each column."""
    import pyarrow.parquet as pq

    content = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        begin = column.dictionary_page_offset or column.data_page_offset
        content[begin + column.total_compressed_size - 4] ^= 4
    path.write_bytes(content)


def file_damaged(world: World, *, pattern: str, damage: Callable[[Path], object], job: str, told: str) -> None:
    """A file is damaged behind a run's back: what reads it refuses it by name, and goes on with the file's copy."""
    world.must()
    world.wave()
    world.must()
    world.wave()
    copy = world.copy()
    damage(last(world.changelog, pattern))
    assert not world.sync(job)
    assert told in " ".join(world.told), world.told
    assert "restore it from a copy of the lake" in " ".join(world.told), world.told
    world.restore(copy)
    world.must()


def last_batch_gone(world: World) -> None:
    """The commits from the newest batch on are gone, as after a disk that lost what it said was written."""
    world.must()
    world.wave()
    world.must()
    for path in sorted(world.changelog.glob("_delta_log/*.json"), reverse=True):
        actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        path.unlink()
        if any("add" in action for action in actions):
            break
    world.wave()
    assert not world.sync()
    assert "restored from an older copy" in " ".join(world.told), world.told
    world.must("reconcile")
    world.wave()
    world.must()


def disk_full(world: World) -> None:
    """The lake is on a disk of its own, which is full: with no page left, with one, and so on to a whole run."""
    place = f"{world.stack.table}_regions"
    (world.stack.project / "regions.sql").write_text(REGIONS.format(place=place), "utf-8")
    world.must()
    world.wave(2000)
    taken = world.copies / "full"
    there = ("-m", FULL_DISK, str(world.stack.path), str(taken))
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", sys.executable, *there],
        input=json.dumps({"topic": world.stack.topic, "variables": dict(world.stack.variables)}),
        cwd=Path(__file__).parents[3],
        env=world.stack.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    runs: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    reasons = [text for texts in runs[:-1] for text in texts]
    assert runs[-1] == [], runs[-1]
    assert reasons and all("the disk is full, or the quota is used up" in text for text in reasons), reasons
    places = {text.partition(": the disk")[0].rpartition("/")[2].rpartition(".")[2] for text in reasons}
    print(f"{len(runs)} runs on a full disk; {len(reasons)} writes refused, of {sorted(places)}")  # noqa: T201
    world.told += reasons
    world.restore(taken)
    world.wave()
    world.must()
    world.must("verify")  # of the query's table too


FAULTS: Final[Mapping[str, Callable[[World], None]]] = {
    **{f"lake of {batches} batches ago": partial(lake_restored, batches=batches) for batches in (1, 2, 10)},
    "last batch gone": last_batch_gone,
    "tables of 2 batches ago": table_restored,
    "data file gone": partial(
        file_damaged, pattern="*.parquet", damage=Path.unlink, job="verify", told="the file is gone"
    ),
    "data file cut": partial(file_damaged, pattern="*.parquet", damage=cut, job="verify", told="it is damaged"),
    "bits of a data file changed": partial(
        file_damaged, pattern="*.parquet", damage=change_bits, job="verify", told="it is damaged"
    ),
    "log cut": partial(file_damaged, pattern="_delta_log/*.json", damage=cut, job="sync", told="it is damaged"),
    "last commit empty": partial(
        file_damaged, pattern="_delta_log/*.json", damage=lambda path: path.write_bytes(b""), job="sync",
        told="the commit is empty",
    ),
    "disk full": disk_full,
}  # fmt: skip
