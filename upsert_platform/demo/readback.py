"""Reads the demo tables with the vendors' own clients, by no code of the platform, and compares them with the truth."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any


def read_tablestore(variables: Mapping[str, str], table: str) -> dict[int, dict[str, Any]]:
    """All rows of the Tablestore table by key, in the types of the declaration."""
    from tablestore import INF_MAX, INF_MIN, Direction, OTSClient

    client = OTSClient(
        variables["UPSERT_TABLESTORE_ENDPOINT"],
        variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        variables["UPSERT_TABLESTORE_INSTANCE"],
        logger_name=None,
    )
    rows: dict[int, dict[str, Any]] = {}
    start: Any = [("user_id", INF_MIN)]
    while start:
        _, start, found, _ = client.get_range(table, Direction.FORWARD, start, [("user_id", INF_MAX)], limit=5000)
        for row in found:
            user_id = row.primary_key[0][1]
            columns = {name: value for name, value, _ in row.attribute_columns}
            rows[user_id] = {
                "user_id": user_id,
                "name": columns.get("name"),
                "region": columns.get("region"),
                "balance": Decimal(columns["balance"]) if "balance" in columns else None,
                "updated_at": datetime.fromisoformat(columns["updated_at"]) if "updated_at" in columns else None,
            }
    return rows


def read_maxcompute(variables: Mapping[str, str], table: str) -> dict[int, dict[str, Any]]:
    """All rows of the MaxCompute table by key, in the types of the declaration."""
    from odps import ODPS

    client = ODPS(
        variables["UPSERT_MAXCOMPUTE_ACCESS_ID"],
        variables["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
        variables["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=variables["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )
    query = f"SELECT user_id, name, region, balance, updated_at FROM {table}"
    with client.execute_sql(query).open_reader(tunnel=True) as reader:
        found = [dict(record) for record in reader]
    return {row["user_id"]: {**row, "updated_at": _without_zone(row["updated_at"])} for row in found}


def _without_zone(value: Any) -> Any:
    """DATETIME comes back in the client's zone; the declared column has none."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        from datetime import UTC

        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def differences(expected: Mapping[int, Mapping[str, Any]], found: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """What differs, a line per key; empty when both are equal."""
    lines = [f"user {key} is missing" for key in expected.keys() - found.keys()]
    lines += [f"user {key} should not be there" for key in found.keys() - expected.keys()]
    for key in expected.keys() & found.keys():
        for name, value in expected[key].items():
            if found[key].get(name) != value:
                lines.append(f"user {key}: {name} is {found[key].get(name)!r}, should be {value!r}")
    return sorted(lines)
