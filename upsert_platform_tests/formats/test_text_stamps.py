"""Columns of timestamps in text: read at once where all are written alike, by a pattern where they are not.

The model is Python's own: one expression for the shape, and `datetime` for what a calendar has.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.types import parse_type
from upsert_platform.formats import text_columns
from upsert_platform.formats.text_columns import convert_text, pattern_of

_SHAPE = r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z?)"
PLAIN = [
    "2020-01-01 10:00:00",
    "1969-12-31 23:59:59.9",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "2024-02-29 00:00:00.12",
]
ODD = [
    "2020-01-01", "2020-01-01 10:00", "2020-01-01T10:00:00", "2020-01-01 10:00:00.", "2020-01-01 10:00:00.1234567",
    "2020-01-01 10:00:00.123456789", "2020-01-01 10:00+00", "2020-01-01 10:00:00Z", "2020-01-01 10:00:00ZZ",
    "2020-01-01 10:00:00+00", "2020-01-01 10:00:60", "2020-01-01 24:00:00", "2020-02-30 10:00:00",
    "2023-02-29 10:00:00", "1900-02-29 10:00:00", "0000-01-01 10:00:00", "2020-01-01 10:00:00,5", "+020-01-01 10:00:00",
    "20 0-01-01 10:00:00", "-020-01-01 10:00:00", "2020-01-01_10:00:00", "2020-01-01 10:00:0 ",
    "2020-01-01 10:00:00.1-01:00", "", "2020-01-01 10:00:00.000\n", "2020-01-01 10:00:00.12é",
]  # fmt: skip


def _model(text: str, *, zone: bool, between: str) -> datetime | None:
    shaped = re.fullmatch(_SHAPE, text, re.ASCII)
    if shaped is None or shaped[2] != between or bool(shaped[5]) != zone:
        return None
    try:
        moment = datetime.fromisoformat(f"{shaped[1]} {shaped[3]}")
    except ValueError:
        return None
    moment += timedelta(microseconds=int((shaped[4] or "").ljust(6, "0")[:6]))
    return moment.replace(tzinfo=UTC) if zone else moment


def _agree(texts: list[str | None], kind: str, standard: str) -> None:
    logical, between = parse_type(kind), "T" if standard == "ISO-8601" else " "
    zone = "LTZ" in kind
    found, doubt = convert_text(pa.array(texts, pa.string()), logical, pattern_of(logical, standard))
    wanted = [None if text is None else _model(text, zone=zone, between=between) for text in texts]
    assert found.to_pylist() == wanted
    doubtful = [text is not None and want is None for text, want in zip(texts, wanted, strict=True)]
    assert (doubt.to_pylist() if doubt is not None else [False] * len(texts)) == doubtful


@pytest.mark.parametrize("standard", ["SQL", "ISO-8601"])
@pytest.mark.parametrize("kind", ["TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"])
@pytest.mark.parametrize("odd", ODD)
def test_one_odd_text_among_plain_ones(odd: str, kind: str, standard: str) -> None:
    end, between = "Z" if "LTZ" in kind else "", "T" if standard == "ISO-8601" else " "
    plain = [text.replace(" ", between) + end for text in PLAIN]
    for text in {odd, odd + end, odd.replace(" ", between), odd.replace(" ", between) + end}:
        for column in ([*plain, text], [text, *plain], [None, text, *plain, None]):
            _agree(column, kind, standard)
            array = pa.array(["x", *column], pa.string())  # of a slice, the buffers begin elsewhere
            assert convert_text(array.slice(1), parse_type(kind), pattern_of(parse_type(kind), standard))[
                0
            ].to_pylist() == [
                None if item is None else _model(item, zone=bool(end), between=between) for item in column
            ]


@given(
    st.lists(
        st.none() | st.sampled_from(PLAIN) | st.sampled_from([*PLAIN, *ODD]) | st.from_regex(_SHAPE, fullmatch=True)
    )
)
@settings(max_examples=300, deadline=None)
def test_any_texts(texts: list[str | None]) -> None:
    for kind in ("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"):
        for standard in ("SQL", "ISO-8601"):
            _agree(texts, kind, standard)


def test_plain_texts_are_read_without_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_columns.pc, "match_substring_regex", None)
    _agree([*PLAIN, None], "TIMESTAMP(6)", "SQL")
    _agree([text + "Z" for text in PLAIN] + [None], "TIMESTAMP_LTZ(6)", "SQL")
