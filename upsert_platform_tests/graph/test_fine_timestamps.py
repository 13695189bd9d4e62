"""TIMESTAMP(9) in a topic: refused with its remedy, and cut to microseconds where the remedy is taken."""

from __future__ import annotations

import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import maxcompute_table

COLUMNS = "user_id BIGINT, at TIMESTAMP(9), seen TIMESTAMP_LTZ(9)"
VALUE = b'{"user_id":1,"at":"2024-02-29 01:02:03.123456789","seen":"2024-02-29 01:02:03.999999999Z"}'


def declare(stack: Stack, source: str) -> None:
    """A topic with fine timestamps, and a table of MaxCompute that keeps them."""
    stack.declare(serving=None, source=source, columns=COLUMNS)
    path = stack.project / "users.sql"
    text = path.read_text("utf-8")
    path.write_text(text.partition("INSERT INTO")[0] + "INSERT INTO users_warehouse SELECT * FROM users;", "utf-8")


def test_the_refusal_of_a_fine_timestamp_names_an_option_that_has_this_effect(stack: Stack) -> None:
    declare(stack, "")
    with pytest.raises(DeclarationError, match="set 'truncate-timestamps' = 'true' to cut them"):
        bind(*load(stack.project, root=str(stack.lake)))
    declare(stack, ", 'truncate-timestamps' = 'true'")
    stack.produce([(b'{"user_id":1}', VALUE)])
    done = stack.run()
    assert done.success
    columns = {"user_id": "BIGINT", "at": "TIMESTAMP(9)"}
    assert [(key, at % 1_000_000_000) for key, at in maxcompute_table(stack.variables, stack.table, columns)] == [
        (1, 123_456_000)
    ]
