"""Runs on several hosts: each process has a name of its host, a process table and temporary files of its own."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.s3 import S3

_SECONDS = 900


@dataclass(frozen=True)
class Host:
    """A machine that shares nothing with another but the network, as far as Linux namespaces tell them apart.

    Attributes:
        folder: for its temporary files and its own Dagster records.
    """

    name: str
    folder: Path

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """Starts a command there; its output is text."""
        for kind in ("tmp", "dagster"):
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
        own = {"TMPDIR": str(self.folder / "tmp"), "DAGSTER_HOME": str(self.folder / "dagster")}
        return subprocess.Popen(
            [
                *("unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"),
                *("sh", "-c", f'hostname {self.name} && exec "$@"', "sh", *command),
            ],
            env={**environment, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def sync_at_once(stack: Stack, s3: S3, *, rounds: int, records: int) -> list[int]:
    """Starts two syncs at once, on two hosts and over one lake on S3, again and again, and looks at all that is there.

    Returns:
        How many batches of each round are in the lake: at least one, and never two of the same offsets.
    """
    hosts = [Host(name, stack.path / name) for name in ("host-a", "host-b")]
    lake = f"{s3.uri}/{stack.path.name}"
    environment = {
        **stack.environment(), "UPSERT_PLATFORM_HOME": lake, "UPSERT_PLATFORM_LAKE_OPTIONS": str(s3.options),
    }  # fmt: skip
    made = []
    for number in range(rounds):
        stack.produce(stack.users.first_wave(records) if number == 0 else stack.users.second_wave(records))
        runs = [host.start(stack.command(), environment) for host in hosts]
        told = [run.communicate(timeout=_SECONDS)[0] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], (number, *(text[-3000:] for text in told))
        assert stack.serving_differences() == [], number
        assert stack.warehouse_differences() == [], number
        batches = batches_of(f"{lake}/changelogs/users", s3, end=stack.users.produced)
        made.append(batches - sum(made))
    return made


def batches_of(uri: str, s3: S3, *, end: int) -> int:
    """How many batches a changelog has; every offset of the topic is in one of them, and no record twice.

    Args:
        end: how many records were produced.
    """
    from deltalake import DeltaTable

    options = dict(line.split("=", 1) for line in s3.options.read_text("utf-8").splitlines())
    rows = DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()
    read: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        if row["_kind"] == "#":
            account = json.loads(row["_accounting"])
            read[account["topic"], account["partition"]].append((account["start"], account["end"]))
    covered = 0
    for ranges in read.values():
        ranges.sort()
        assert ranges[0][0] == 0, ranges
        assert all(before[1] == after[0] for before, after in pairwise(ranges)), ranges
        covered += ranges[-1][1]
    assert covered == end
    places = [(row["_partition"], row["_offset"]) for row in rows if row["_kind"] != "#"]
    assert len(places) == len(set(places))
    return len({row["_batch"] for row in rows})
