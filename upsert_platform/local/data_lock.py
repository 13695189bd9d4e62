"""A lock on the data directory of a local server."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


def lock_data(directory: Path) -> IO[bytes]:
    """Keep a second server away from a directory; the lock ends with the process, however that ends.

    Returns:
        The file that has the lock, which is given back when the file is closed.

    Raises:
        OSError: another server has it.
    """
    file = (directory / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OSError(f"another server uses the data in {directory}; stop it, or take another directory") from None
    return file
