"""Server processes that end with the process that started them, however that ends: a killed test run leaves none.

Their standard input is a pipe of which only the starting process has the other end, so it closes when that one is gone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_WATCHED = """
import os, runpy, sys, threading
def end_with_starter():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=end_with_starter, daemon=True).start()
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def start_dependent(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[Any]:
    """Runs a module as ``python -m`` does, for as long as this process runs.

    Args:
        options: more of `subprocess.Popen`; not its standard input.
    """
    command = [sys.executable, "-c", _WATCHED.strip(), module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, **options)
