"""A reset forgets the position of a table, and drops the table where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform_tests.postgres.conftest import Tables
from upsert_platform_tests.postgres.declared import changes, write

pytestmark = pytest.mark.systems
COLUMNS = {"id": "BIGINT", "n": "BIGINT"}


def test_position_is_forgotten_and_the_table_dropped(
    postgres_tables: Tables, ask: Callable[..., list[tuple[Any, ...]]]
) -> None:
    table = postgres_tables(COLUMNS)
    write(table, changes(COLUMNS, (1, 2, "U")))
    destination = PostgresDestination(table)
    assert destination.state().applied_batch == 1
    with destination.lease(owner="reset", duration=timedelta(minutes=1)) as lease:
        destination.forget_applied(lease)
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.verdict) == (0, "", None)
    assert ask(f"SELECT id, n FROM {table.place.sql}") == [(1, 2)]
    assert destination.drop_refusal() is None
    for _ in range(2):  # one that is gone is no error
        destination.drop_table()
    assert ask(f"SELECT to_regclass('{table.place.sql}')") == [(None,)]
    destination.close()
