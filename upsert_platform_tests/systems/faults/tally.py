"""What became of faults: healed or refused by name; rows lost, doubled or uncounted, as the referee finds them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from upsert_platform_tests.graph.stack import Stack

_PAGE: Final = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
MESSAGES: Final = tuple(re.findall(r"^\| `([^`]+)`", _PAGE.read_text("utf-8"), re.MULTILINE))
"""The messages that docs/troubleshooting.md explains, each by a part of its text."""


@dataclass
class Tally:
    """Counts of a campaign.

    Attributes:
        healed: faults after which a run went on by itself.
        refused: faults that a run refused by name; what is to be done about them was done, and the next run went on.
    """

    healed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    uncounted: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.healed) + len(self.refused)} faults: {len(self.healed)} healed, {len(self.refused)} refused by"
            f" name, {self.lost} lost, {self.doubled} doubled, {self.uncounted} uncounted"
        )

    def add(self, name: str, told: list[str], stack: Stack) -> None:
        """Counts a fault, and what the tables and the lake hold after it.

        Args:
            told: why runs failed on account of the fault; each has to stand in docs/troubleshooting.md.
        """
        unexplained = [text for text in told if not any(message in text for message in MESSAGES)]
        assert not unexplained, f"{name}: docs/troubleshooting.md has no row of {unexplained}"
        (self.refused if told else self.healed).append(name)
        lines = [*stack.serving_differences(), *stack.warehouse_differences()]
        extra = [line for line in lines if line.startswith("extra")]
        doubled, uncounted = lake_counts(stack)
        self.lost += len(lines) - len(extra)
        self.doubled += len(extra) + doubled
        self.uncounted += uncounted
        assert (lines, doubled, uncounted) == ([], 0, 0), name


def lake_counts(stack: Stack) -> tuple[int, int]:
    """Records that the changelog has twice, and offsets of the topic that no batch or more than one accounts for."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(stack.lake / "changelogs" / "users")).to_pyarrow_table().to_pylist()
    places = [(row["_partition"], row["_offset"]) for row in rows if row["_kind"] != "#"]
    read: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        if row["_kind"] == "#":
            account = json.loads(row["_accounting"])
            read[account["partition"]].append((account["start"], account["end"]))
    covered = gaps = 0
    for ranges in read.values():
        ranges.sort()
        gaps += ranges[0][0] + sum(abs(after[0] - before[1]) for before, after in pairwise(ranges))
        covered += ranges[-1][1]
    return len(places) - len(set(places)), gaps + abs(stack.users.produced - covered)
