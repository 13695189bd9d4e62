"""Functions of texts in Arrow, as Spark computes them: case, parts between separators, and groups of patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def with_case(texts: Any, *, upper: bool) -> Any:
    """Return the texts in lower or upper case. Python changes each distinct text that is not ASCII."""
    found = pc.ascii_upper(texts) if upper else pc.ascii_lower(texts)
    others = pc.fill_null(pc.invert(pc.string_is_ascii(texts)), False)
    if not pc.any(others).as_py():
        return found
    change: Callable[[str], str] = str.upper if upper else str.lower
    coded = pc.dictionary_encode(texts.filter(others).combine_chunks())
    changed = pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(
        found.combine_chunks(), others.combine_chunks(), changed.take(coded.indices).cast(found.type)
    )


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
