"""Start the process that keeps a warm Spark session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from upsert_platform.spark.scratch import began_at
from upsert_platform.spark.warm_offer import make_folder

LOG: Final = "session.log"
"""What the process writes, in the session's folder."""


def start_process(
    where: Path,
    *,
    idle: float,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
    beside: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start the process in the background; it offers the session when that is open.

    Args:
        where: the folder of `warm_offer.folder`; made if it is missing.
        idle: seconds without a run after which it ends.
        environment: its variables, which runs must have alike; those of this process if left out.
        beside: a process with which it ends.

    Raises:
        EndpointError: the folder belongs to others.
    """
    make_folder(where)
    command = [sys.executable, "-P", "-m", "upsert_platform.spark.warm_process", str(where), str(idle), profile or ""]
    if beside is not None:
        command += [str(beside), str(began_at(beside) or 0.0)]
    with os.fdopen(os.open(where / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
