"""The function that Nexmark's q14 calls, as a project has it beside its statements."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform import udf


@udf(result_type="BIGINT", arguments=["STRING", "STRING"])
def count_char(texts: pa.Array, characters: pa.Array) -> pa.Array:
    """Return how often a text has a character; none in a text that is null."""
    counts = pa.nulls(len(texts), pa.int64())
    for character in characters.unique().drop_null():  # one, where the statement names it
        found = pc.count_substring(texts, pattern=character.as_py()).cast(pa.int64())
        counts = pc.if_else(pc.equal(characters, character), found, counts)
    return pc.fill_null(counts, 0)
