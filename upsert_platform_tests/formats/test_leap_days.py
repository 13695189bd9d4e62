"""29 February is read in bulk in leap years, as every other day: one day in four years is no reason to be slow."""

from __future__ import annotations

from calendar import isleap
from datetime import UTC, date, datetime

import pytest

from upsert_platform.formats import build_decoder
from upsert_platform_tests.formats.support import columns_of

YEARS = [4, 96, 100, 400, 800, 1000, 1584, 1600, 1700, 1904, 2000, 2023, 2024, 2028, 2100, 2400, 9600, 9996, 9999]


@pytest.mark.parametrize("year", YEARS)
def test_the_last_day_of_february(year: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = build_decoder("json", columns_of("r ROW<d DATE, t TIMESTAMP(3), z TIMESTAMP_LTZ(3)>"), {})
    if isleap(year):
        monkeypatch.setattr(decoder, "_read", None)  # what reads messages one by one
    day = f"{year:04}-02-29"
    message = f'{{"r":{{"d":"{day}","t":"{day} 01:02:03.5","z":"{day} 01:02:03Z"}}}}'.encode()
    decoded = decoder.decode([message] * 100)
    if not isleap(year):
        assert len(decoded.errors) == 100
        return
    want = {
        "d": date(year, 2, 29),
        "t": datetime(year, 2, 29, 1, 2, 3, 500_000),  # noqa: DTZ001 - TIMESTAMP has no zone
        "z": datetime(year, 2, 29, 1, 2, 3, tzinfo=UTC),
    }
    assert decoded.rows.column("r").to_pylist() == [want] * 100
