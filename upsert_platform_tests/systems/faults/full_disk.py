"""Runs syncs while the lake's disk is full: a program of its own, in a mount namespace, which may mount a small disk.

Arguments: the folder of the stack, and where the lake is put afterwards. Its input names topic and variables. The last
line of its output is a list of the reasons for which each run failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PAGE = 4096


def main(path: Path, taken: Path) -> None:
    from upsert_platform_tests.graph.stack import Stack
    from upsert_platform_tests.systems.faults.world import reasons

    given = json.load(sys.stdin)
    os.environ |= given["variables"]
    stack = Stack(path, given["variables"], given["topic"])
    before = path / "before"
    shutil.move(stack.lake, before)
    stack.lake.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "disk", str(stack.lake)], check=True)
    shutil.copytree(before, stack.lake, dirs_exist_ok=True)
    filler = stack.lake / "filler"
    told: list[list[str]] = []
    for left in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096):
        fill(filler, left * PAGE)
        result = stack.run()
        told.append(reasons(result))
        filler.unlink()
        if result.success:
            break
    shutil.copytree(stack.lake, taken)
    print(json.dumps(told))  # noqa: T201


def fill(path: Path, left: int) -> None:
    """Leaves so many bytes of the disk."""
    free = shutil.disk_usage(path.parent).free - left
    path.write_bytes(b"\1" * max(free, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
