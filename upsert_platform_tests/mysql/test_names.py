from __future__ import annotations

import pytest

from upsert_platform.mysql.names import TableSelection, parse_patterns
from upsert_platform.mysql.routes import Route, topics

MATCHES = [
    (r"shop.orders", ("shop", "orders"), True),
    (r"shop.orders", ("shop", "orders_2"), False),
    (r"shop.orders", ("shopXorders", ""), False),
    (r"shop.\.*", ("shop", "anything"), True),
    (r"shop_[0-9]+.user_\d{1,3}", ("shop_12", "user_123"), True),
    (r"shop_[0-9]+.user_\d{1,3}", ("shop_12", "user_1234"), False),
    (r"a|b.c|d", ("b", "d"), True),
    (r"a|b.c|d", ("a", "x"), False),
    (r"one.x, two.y", ("two", "y"), True),
    (r"one.x, two.y", ("two", "x"), False),
]


@pytest.mark.parametrize(("pattern", "names", "expected"), MATCHES)
def test_points_separate_names_and_the_rest_is_a_regular_expression(
    pattern: str, names: tuple[str, str], expected: bool
) -> None:
    assert TableSelection(parse_patterns(pattern)).has(*names) is expected


def test_exclusions_take_out_what_patterns_name() -> None:
    selection = TableSelection(parse_patterns(r"shop.\.*"), parse_patterns(r"shop._\.*_gho,shop.tmp"))
    assert [name for name in ("orders", "_orders_gho", "tmp", "tmp2") if selection.has("shop", name)] == [
        "orders",
        "tmp2",
    ]


@pytest.mark.parametrize("pattern", ["orders", "a.b.c", "shop.*x", "shop.("])
def test_what_is_not_a_pattern_is_told(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"parts; a schema and a table|is not a regular expression"):
        parse_patterns(pattern)


def test_every_route_that_is_for_a_table_gives_a_topic() -> None:
    routes = [
        Route(parse_patterns(r"shop.\.*"), "ods_<>", "<>"),
        Route(parse_patterns("shop.orders,shop.users"), "people"),
        Route(parse_patterns("other.x"), "x"),
    ]
    assert topics(routes, "shop", "orders") == ("ods_orders", "people")
    assert topics(routes, "shop", "items") == ("ods_items",)
    assert topics(routes, "new", "t") == ("new.t",)
