"""Name the file or folder of the lake that an error of a library is about, what is wrong with it, and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from upsert_platform.core.errors import ChangelogError

RESTORE: Final = (
    "restore it from a copy of the lake; without one, 'upsert-platform reset TABLE --drop-target' of its table and the"
    " next sync build both anew"
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXTS: Final = ("No space left on device", "os error 28", "Disk quota exceeded", "File too large", "os error 27")
_AWAY_TEXTS: Final = (
    "error sending request",
    "Connection refused",
    "tcp connect error",
    "timed out",
    "after 10 retries",
)
"""What object stores say that do not answer: nothing is known of the file then."""
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_DENIED_TEXTS: Final = ("Permission denied", "Read-only file system", "Operation not permitted")


@contextmanager
def naming(place: str, *, writes: bool = False) -> Iterator[None]:
    """Within the block, errors of the file system, Arrow and delta-rs become a `ChangelogError` about a file or folder.

    A commit that another one came before, and a table that is not there, stay what they are.

    Args:
        place: the file or folder.
        writes: whether it is written, not read.

    Raises:
        ChangelogError: naming the place.
    """
    import pyarrow as pa
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    try:
        yield
    except (CommitFailedError, TableNotFoundError):
        raise
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise ChangelogError(_told(place, error, writes=writes)) from error


def _told(place: str, error: Exception, *, writes: bool) -> str:
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number in _FULL or any(part in text for part in _FULL_TEXTS):
        return (
            f"{place}: the disk is full, or the quota is used up. Nothing of this batch was committed: make room (job"
            " 'compact' reduces the lake), and run it again"
        )
    if number in _DENIED or any(part in text for part in _DENIED_TEXTS):
        return f"{place}: this user may not {'write' if writes else 'read'} it; grant the right, and run it again"
    reason = text.partition("\n")[0][:300]
    if any(part in text for part in _AWAY_TEXTS):
        return (
            f"{place}: the store does not answer ({type(error).__name__}: {reason}); check its endpoint, and run again"
        )
    if writes:
        return f"{place}: cannot be written ({type(error).__name__}: {reason}). Nothing of this batch was committed"
    if isinstance(error, FileNotFoundError):
        return f"{place}: the file is gone, though the log of its table names it; {RESTORE}"
    return f"{place}: cannot be read, it is damaged ({type(error).__name__}: {reason}); {RESTORE}"
