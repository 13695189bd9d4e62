"""Shapes: four bytes of SRID and well-known binary, as GeoJSON with the SRID beside it."""

from __future__ import annotations

import struct
from typing import Final

from upsert_platform.core.errors import ReplicationError

_NAMES: Final = {
    1: "Point", 2: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon",
    7: "GeometryCollection",
}  # fmt: skip
_MOST_DEEP: Final = 100


def geometry_text(data: bytes, *, column: str) -> str:
    """One shape, for example ``{"coordinates":[1,2],"type":"Point","srid":0}``.

    Raises:
        ReplicationError: it is not well-known binary of a two-dimensional shape.
    """
    try:
        srid = struct.unpack_from("<I", data)[0]
        content, name, at = _shape(data, 4, 0)
    except (struct.error, KeyError) as error:
        raise ReplicationError(f"{column}: a shape cannot be read: {error!r}") from error
    if at != len(data):
        raise ReplicationError(f"{column}: {len(data) - at} bytes stand behind a shape")
    return f'{{{content},"type":"{name}","srid":{srid}}}'


def _shape(data: bytes, at: int, depth: int) -> tuple[str, str, int]:
    """The member with its content, the name of its type, and where it ends."""
    order = "<" if data[at : at + 1] == b"\1" else ">"
    kind = struct.unpack_from(f"{order}I", data, at + 1)[0]
    at += 5
    name = _NAMES[kind]
    if kind == 7:
        if depth >= _MOST_DEEP:
            raise struct.error("collections stand in each other too deep")
        count = struct.unpack_from(f"{order}I", data, at)[0]
        at += 4
        shapes = []
        for _ in range(count):
            content, inner, at = _shape(data, at, depth + 1)
            shapes.append(f'{{{content},"type":"{inner}"}}')
        return f'"geometries":[{",".join(shapes)}]', name, at
    text, at = _coordinates(data, at, kind, order)
    return f'"coordinates":{text}', name, at


def _coordinates(data: bytes, at: int, kind: int, order: str) -> tuple[str, int]:
    if kind == 1:
        x, y = struct.unpack_from(f"{order}dd", data, at)
        return f"[{_number(x)},{_number(y)}]", at + 16
    count = struct.unpack_from(f"{order}I", data, at)[0]
    at += 4
    parts = []
    for _ in range(count):
        if kind in (4, 5, 6):
            inner_order = "<" if data[at : at + 1] == b"\1" else ">"
            text, at = _coordinates(data, at + 5, kind - 3, inner_order)
        else:
            # A line is made of points, a polygon of rings, which are lines.
            text, at = _coordinates(data, at, kind - 1, order)
        parts.append(text)
    return f"[{','.join(parts)}]", at


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
