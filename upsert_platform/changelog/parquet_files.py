"""Parquet files of the lake, whose pages hold a checksum: a bit that changed is an error, and never another value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CHECKSUMS: Final = {"write_page_checksum": True}
"""Settings of every writer; without a checksum a page that was changed on its disk may decode to other values."""


def open_parquet(source: str | pa.NativeFile, **more: Any) -> pq.ParquetFile:
    """Open a file whose reads compare the checksums of its pages; older files have none, and are read as they are.

    Args:
        source: the file, or its path.
        more: settings of ``pyarrow.parquet.ParquetFile``.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **more)
