"""What assets show beside their numbers: where they are, how many rows they have, and who declared them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from upsert_platform_tests.graph.stack import Stack, metadata_of


@pytest.mark.usefixtures("spark")
def test_assets_tell_where_they_are_and_how_far_they_come(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.changelog.progress.EVERY", 0.002)  # as of a write that takes minutes
    monkeypatch.setattr("upsert_platform.graph.observed_progress.EVERY", 0.0)
    stack.produce(stack.users.first_wave(400))
    result = stack.run()
    assert result.success
    changelog = metadata_of(result, "changelogs", "users")
    lake = DeltaTable(str(stack.lake / "changelogs" / "users"))
    kinds = lake.to_pyarrow_table().column("_kind").to_pylist()
    assert changelog["dagster/row_count"] == sum(kind in ("+U", "-D") for kind in kinds) < len(kinds)
    assert changelog["dagster/uri"] == str(stack.lake / "changelogs" / "users")
    serving = metadata_of(result, "tables", "users_serving")
    assert serving["dagster/uri"].startswith(stack.variables["UPSERT_TABLESTORE_ENDPOINT"])
    assert serving["dagster/uri"].endswith(f"/{stack.table}")
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    done = [item.metadata["rows_done"].value for item in observed if item.asset_key.path[-1] == "users_serving"]
    assert done == sorted(done)
    assert 0 <= done[-1] <= serving["upserts"] + serving["deletes"]
    again = stack.run()
    assert metadata_of(again, "tables", "users_serving")["dagster/uri"] == serving["dagster/uri"]

    verified = stack.run("verify")
    counts = {
        event.asset_key.path[-1]: event.asset_observation_data.asset_observation.metadata["dagster/row_count"].value
        for event in verified.get_asset_observation_events()
        if event.asset_key is not None
    }
    warehouse = sum(row["region"] != "test" for row in stack.users.rows.values())
    assert counts == {"users_serving": len(stack.users.rows), "users_warehouse": warehouse}


def test_assets_lead_to_their_declarations(stack: Stack) -> None:
    stack.declare(serving=", 'owners' = 'ann@example.org'")
    (serving,) = [item for item in stack.definitions().assets or () if item.key.path == ["tables", "users_serving"]]
    found = serving.metadata_by_key[serving.key]["dagster/code_references"]
    assert isinstance(found, dg.CodeReferencesMetadataValue)
    lines = {
        Path(item.file_path).read_text().splitlines()[item.line_number - 1].split("(")[0].strip()
        for item in found.code_references
        if isinstance(item, dg.LocalFileCodeReference) and item.line_number is not None
    }
    assert lines == {"CREATE TABLE users_serving", "INSERT INTO users_serving SELECT * FROM users;"}
    described = serving.descriptions_by_key[serving.key]
    assert "declared at users.sql:" in described
    assert str(stack.path) not in described
