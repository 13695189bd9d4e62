"""Files of object storage, reached through the store of delta-rs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler


class ObjectFiles(DeltaStorageHandler):
    """Files as Arrow reads and writes them.

    The stream of delta-rs takes bytes alone, and some of Arrow's writers (that of its own file format) hand on buffers.
    """

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        """A stream whose file is there when it is closed."""
        return pa.PythonFile(_TakesBuffers(self._handler.open_output_stream(path, metadata)), mode="w")


class _TakesBuffers:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        return int(self._stream.write(data if isinstance(data, bytes) else bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
