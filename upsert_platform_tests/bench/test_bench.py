"""Suites of `make bench`, small: that they run and print their figures, which are for `make bench` to judge."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.systems, pytest.mark.timeout(600)]

SUITES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "changelog": ({"records": 20_000, "keys": 5_000}, {}, {"topic_to_changelog", "reader_memory"}),
    "tablestore": (
        {"rows": 2_000},
        {"REPEATS": 1, "SESSION_ROWS": 4_000, "MEMORY_ROWS": (2_000, 20_000)},
        {"tablestore_writer", "tablestore_memory", "tablestore_session"},
    ),
    "maxcompute": (
        {"rows": 2_000, "memory_rows": (2_000, 20_000)},
        {"REPEATS": 1},
        {"maxcompute_writer", "maxcompute_tunnel_writer", "maxcompute_memory", "maxcompute_tunnel_memory"},
    ),
    "postgres": ({"rows": 2_000}, {"REPEATS": 1}, {"postgres_writer", "postgres_writer_again_in_order"}),
    "postgres_job": ({"upserts": 2_000}, {"REPEATS": 1}, {"postgres_job"}),
    "formats": ({"rows": 1_000}, {}, {"json_decode_simple", "avro_confluent_encode", "protobuf_encode"}),
    "sink": ({"rows": 2_000}, {"REPEATS": 1}, {"sink_at_least_once", "sink_exactly_once", "topic_to_topic"}),
    "cluster_scaling": ({"records": 20_000, "keys": 5_000}, {"REPEATS": 1}, {"cluster_scaling"}),
    "stream": (
        {"small": 200, "rate": 200, "great_rate": 400, "seconds": 5.0},
        {"REPEATS": 1},
        {"small_sync", "small_sync_warm", "small_sync_local", "stream_delay", "stream_delay_both", "stream_rate"},
    ),
    "hops": (
        {"rows": 1_000},
        {},
        {"hop_to_topic", "hop_to_tablestore", "hop_to_maxcompute", "check_of_batch", "wide_rows"},
    ),
    "jobs": (
        {"tables": 3, "records": 5, "copied": 2_000, "keys": 100},
        {},
        {"many_tables", "many_tables_idle", "many_tables_asked", "whole_copy"},
    ),
    "planning": ({"records": 16_000, "keys": 16_000}, {}, {"plan_estimate"}),
    "mysql_proof": ({"rows": 2_000, "rate": 100, "proofs": 1}, {}, {"prove_database"}),
    "nexmark": ({"events": 5_000, "queries": "q2,q4,q19"}, {"MORE": 500}, {"nexmark", "nexmark_more"}),
    "nexmark_upserts": ({"events": 5_000, "queries": "q4,q18"}, {}, {"nexmark_upserts"}),
}
"""Arguments of a suite's `run`, other values of its constants, and measures that it has to tell."""


_RUN = """
import importlib, json, sys
name, arguments, constants = sys.argv[1], *map(json.loads, sys.argv[2:])
suite = importlib.import_module(f"upsert_platform_tests.bench.{name}")
for constant, value in constants.items():
    setattr(suite, constant, value)
for measured in suite.run(**arguments):
    print(json.dumps(measured))
"""


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_and_tells_its_figures(name: str) -> None:
    """In a process of its own, as `make bench` runs it: suites open and stop Spark's session."""
    arguments, constants, told = SUITES[name]
    command = [sys.executable, "-c", _RUN, name, json.dumps(arguments), json.dumps(constants)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert told <= {item["name"] for item in measured}
    assert all(math.isfinite(item["seconds"]) for item in measured)
