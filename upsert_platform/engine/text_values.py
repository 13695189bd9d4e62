"""Functions of texts in Arrow, as Spark computes them. Positions and lengths are in code points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def part_of(lists: Any, index: int) -> Any:
    """The element of each list at an index from 0; null where it has none."""
    found = []
    for chunk in lists.chunks:
        offsets = chunk.offsets.to_numpy().astype(np.int64)
        places = offsets[:-1] + index
        missing = places >= offsets[1:]
        found.append(chunk.values.take(pa.array(np.where(missing, 0, places), mask=missing)))
    return pa.chunked_array(found, lists.type.value_type)


def group_of(texts: Any, pattern: str) -> Any:
    """The group of a pattern's first match in each text, which is the only one with a name; empty without a match.

    Args:
        pattern: of RE2.
    """
    found = pc.extract_regex(texts, pattern=pattern)
    group = pc.fill_null(pc.struct_field(found, [0]), "")
    return pc.if_else(pc.is_valid(texts), group, pa.scalar(None, group.type)) if texts.null_count else group


def _slice(texts: Any, start: int, stop: int | None) -> Any:
    """Code points from one position before another, as Python counts them."""
    if stop is None:
        return pc.utf8_slice_codeunits(texts, start)
    return pc.utf8_slice_codeunits(texts, start, stop)


def _trim(texts: Any, side: str, characters: str) -> Any:
    return {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}[side](texts, characters)


def _position(texts: Any, wanted: str) -> Any:
    """The code point from 1 at which a text first occurs; 0 where it does not."""
    places = pc.find_substring(texts, wanted)
    if not pc.any(pc.invert(pc.string_is_ascii(texts))).as_py():
        return pc.add(places, pa.scalar(1, pa.int32()))
    if not wanted:
        return pc.if_else(pc.is_valid(texts), pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
    before = part_of(pc.split_pattern(texts, pattern=wanted, max_splits=1), 0)
    found = pc.add(pc.utf8_length(before), pa.scalar(1, pa.int32()))
    return pc.if_else(pc.less(places, 0), pa.scalar(0, pa.int32()), found)


def _joined(*texts: Any) -> Any:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _joined_present(separators: Any, *texts: Any) -> Any:
    """The texts that are not null. (Arrow's own join that skips nulls loses rows in which all are.)"""
    found = texts[0]
    for text in texts[1:]:
        found = pc.coalesce(_joined(found, separators, text), found, text)
    return pc.if_else(pc.is_valid(separators), pc.fill_null(found, ""), pa.scalar(None, pa.string()))


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "split": lambda texts, separator: pc.split_pattern(texts, pattern=separator),
    "part": part_of,
    "like": lambda texts, pattern: pc.match_substring_regex(texts, pattern=pattern),
    "group": group_of,
    "starts": lambda texts, wanted: pc.starts_with(texts, wanted),
    "ends": lambda texts, wanted: pc.ends_with(texts, wanted),
    "contains": lambda texts, wanted: pc.match_substring(texts, wanted),
    "join": _joined,
    "join present": _joined_present,
    "text": lambda values: values.cast(pa.string()),
    "slice": _slice,
    "trim": _trim,
    "replace": lambda texts, old, new: pc.replace_substring(texts, pattern=old, replacement=new),
    "length": pc.utf8_length,
    "position": _position,
}
"""Operators of forms: what they take, then what else stands in the form."""
