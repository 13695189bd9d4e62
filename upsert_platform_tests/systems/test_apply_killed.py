"""An `apply` that is killed with SIGKILL, at any of its steps, is finished by the same command."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from upsert_platform.proofs.plan import plan_project
from upsert_platform.proofs.plan_file import plan_data
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_apply import TOTALS, Edited, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.systems, pytest.mark.timeout(1500)]

STEPS = ("is computed anew", "writing the rows of 'copied'", "writing the rows of 'totals'", "writing table 'added'")
"""Beginnings of lines that the command shows, at which it is killed."""


def test_an_apply_that_was_killed_at_any_step_is_finished_by_the_same_command(
    stack: Stack, spark: SparkSession
) -> None:
    edited, chosen = Edited(stack, spark), random.Random(31)
    file = stack.path / "plan.json"
    file.write_text(json.dumps(plan_data(plan_project(spark, edited.binding(), edited.lake))), "utf-8")
    command = [sys.executable, "-m", "upsert_platform.cli.main", "apply", str(file), "--project", str(edited.folder)]
    killed = 0
    for step in STEPS:
        process = subprocess.Popen(
            command, env=stack.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if step in line:
                time.sleep(chosen.uniform(0, 1.5))
                process.kill()
                break
        code = process.wait()
        assert code in (-9, 0), "".join(lines)
        killed += code == -9
    assert killed >= 2
    done = subprocess.run(command, env=stack.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    edited.check()
    # Any reader of the lake has seen the old result, and then the new one.
    old = {row[0]: row[2] for row in edited.expected(TOTALS)}
    seen = [found for found in results(edited) if found]
    assert seen[0] == old
    assert seen[-1] != old
    assert len({tuple(sorted(found.items())) for found in seen}) == 2
