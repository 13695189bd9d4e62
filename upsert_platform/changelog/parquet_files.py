"""Parquet files of the lake, whose pages hold a checksum: a bit that changed is an error, and never another value."""

from __future__ import annotations

from collections.abc import Sequence
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


def part_of(field: pa.Field, names: Sequence[str] | None) -> pa.Field:
    """A field of type ROW with some of its fields alone; as it is with None."""
    import pyarrow as pa

    return field if names is None else field.with_type(pa.struct([field.type.field(name) for name in names]))


def columns_to_read(wanted: pa.Schema, there: pa.Schema) -> list[str]:
    """The columns of a file to open, by the names that readers of Parquet take: of a ROW the wanted fields alone.

    Args:
        there: the schema of the file; a ROW that lacks a wanted field is opened as a whole.
    """
    import pyarrow as pa

    plain = not any("." in name for name in there.names)
    found: list[str] = []
    for field in wanted:
        if field.name not in there.names:
            continue
        kind, known = field.type, there.field(field.name).type
        names = [item.name for item in kind] if pa.types.is_struct(kind) and pa.types.is_struct(known) else []
        held = [item.name for item in known] if names else []
        if plain and names and len(names) < len(held) and all(name in held and "." not in name for name in names):
            found += [f"{field.name}.{name}" for name in names]
        else:
            found.append(field.name)
    return found
