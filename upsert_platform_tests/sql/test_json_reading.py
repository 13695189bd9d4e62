"""Numbers in JSON, as Flink's functions read them: a fraction is a BigDecimal, whose text keeps its digits."""

from __future__ import annotations

import pytest

from upsert_platform.sql.json_reading import read_query, read_value


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.50", "1.50"), ("1e3", "1E+3"), ("-0.0", "-0.0"), ("1E-7", "1E-7"), ("0.000001", "0.000001"), ("7", "7"),
     ("799.929496989092949698", "799.929496989092949698"), ("12345678901234567890", "12345678901234567890")],
)  # fmt: skip
def test_numbers_keep_their_digits(number: str, text: str) -> None:
    expected = "0.0" if text == "-0.0" else text  # a BigDecimal has no negative zero
    assert read_value(f'{{"n": {number}}}', "$.n") == (expected, None)
    assert read_query(f'{{"n": [{number}]}}', "$.n", "WITHOUT") == (f"[{expected}]", None)
