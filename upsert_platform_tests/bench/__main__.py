"""`make bench`: every measure as one JSON object a line. Names given as arguments choose among the suites."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

SUITES = (
    "changelog", "tablestore", "maxcompute", "sync", "formats", "sink", "queries", "topic_queries", "mysql", "stream",
    "postgres", "postgres_job", "cluster_scaling",
    "hops", "jobs", "switching", "planning", "mysql_proof", "nexmark", "nexmark_upserts",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Runs each suite in a process of its own, so that none inherits another's warm caches or memory."""
    chosen = arguments or list(SUITES)
    unknown = [name for name in chosen if name not in SUITES]
    if unknown:
        print(f"unknown suite '{unknown[0]}'; there are: {', '.join(SUITES)}", file=sys.stderr)  # noqa: T201
        return 2
    if len(chosen) > 1:
        return max(
            subprocess.run([sys.executable, "-m", "upsert_platform_tests.bench", name], check=False).returncode
            for name in chosen
        )
    for measured in importlib.import_module(f"upsert_platform_tests.bench.{chosen[0]}").run():
        print(json.dumps(measured), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
