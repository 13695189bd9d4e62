"""Names of assets."""

from __future__ import annotations

import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Options, Table
from upsert_platform.graph import keys


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (
            {"connector": "tablestore", "table.name": "users", "tablestore.instance.name": "shop"},
            "tablestore.shop.users",
        ),
        ({"connector": "maxcompute", "table.name": "users", "odps.project.name": "shop"}, "maxcompute.shop.users"),
        ({"connector": "upsert-kafka", "topic": "users"}, "kafka.users"),
        ({"connector": "tablestore"}, "tablestore.declared"),
    ],
)
def test_tables_of_one_name_in_two_systems_are_stored_apart(options: dict[str, str], stored: str) -> None:
    table = Table("declared", (), (), Options(options), SourceLocation("x.sql", 1))
    assert keys.stored_as(table) == stored
