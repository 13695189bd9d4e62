"""The rows of a response body, which is an Arrow stream: all of them, or an error.

Arrow readers take a body that ends where a batch ends for a whole one. A connection that a proxy closes early would so
lose rows without a word; only the end marker says that all have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from upsert_platform.maxcompute.connection import ServiceError

if TYPE_CHECKING:
    from requests import Response


class _Body:
    """A body as a file that notices when more is wanted than it has."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.short = False
        self.closed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = b""
        while size < 0 or len(found) < size:
            part = self._raw.read(None if size < 0 else size - len(found))
            if not part:
                self.short = self.short or size >= 0
                break
            found = found + part if found else part
        return found

    def close(self) -> None:
        self.closed = True


class _Answer:
    """A stand-in for the response that PyODPS reads from."""

    def __init__(self, body: _Body) -> None:
        self.raw = body

    def close(self) -> None:
        self.raw.close()


def read_batches(answer: Response, what: str) -> Iterator[pa.RecordBatch]:
    """The batches of a streamed response.

    Args:
        what: is read, for errors.

    Raises:
        ServiceError: the body is corrupt or broken off, or ends before its end marker; batches before are given.
    """
    from odps.maxstorage.io.arrow_reader import ArrowStreamReader
    from urllib3.exceptions import HTTPError

    body = _Body(answer.raw)
    rows = 0
    try:
        reader = ArrowStreamReader(_Answer(body))
        while (batch := reader.read()) is not None:
            rows += batch.num_rows
            yield batch
    except (pa.ArrowException, HTTPError, OSError) as error:
        raise _broken(f"{what} broke off after {rows} rows: {error}") from error
    if body.short:
        raise _broken(f"{what} ended after {rows} rows, before its end marker")


def _broken(text: str) -> ServiceError:
    return ServiceError(text, status=None, code="BodyCut", sure=False)
