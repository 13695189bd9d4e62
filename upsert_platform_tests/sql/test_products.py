"""The digits that a product of decimals has, which text and form of an expression take alike."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.sql.arithmetic import arithmetic
from upsert_platform.sql.native import native_form
from upsert_platform.sql.numbers import arithmetic_type, whole_digits_of_product
from upsert_platform.sql.rendered import Rendered

_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
TYPES = [(1, 0), (1, 1), (3, 2), (4, 3), (8, 2), (10, 10), (19, 0), (20, 19), (37, 0), (38, 0), (38, 6), (38, 37)]


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
def test_the_greatest_product_has_the_whole_digits_of_both_factors(
    left: tuple[int, int], right: tuple[int, int]
) -> None:
    kinds = [parse_type(f"DECIMAL({precision}, {scale})") for precision, scale in (left, right)]
    whole = [precision - scale for precision, scale in (left, right)]
    made = arithmetic("*", *(Rendered(f"`{name}`", kind, simple=True) for name, kind in zip("ab", kinds, strict=True)))
    found = whole_digits_of_product(*kinds, whole=whole)
    assert made.most_whole == found
    scale = arithmetic_type("*", *kinds).scale
    assert scale is not None
    greatest = [Decimal(10**precision - 1).scaleb(-scale, _EXACT) for precision, scale in (left, right)]
    product = _EXACT.multiply(*greatest)
    if found is None:
        assert product != product.quantize(Decimal(1).scaleb(-scale), context=_EXACT)  # digits are rounded away
        return
    assert product < 10**found
    if left[0] + right[0] < 38:  # what Arrow computes
        types = dict(zip("ab", kinds, strict=True))
        for room, fits in ((found, True), (found - 1, False)):
            if room >= 0 and room + scale > 0:
                text = f"CAST(`a` * `b` AS DECIMAL({room + scale}, {scale}))"
                form = native_form(text, types)
                assert form is not None
                assert form[0] == ("decimal" if fits else "fit"), text
