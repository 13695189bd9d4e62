"""A table that is paused is left out of syncs, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.changelog import pauses
from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform_tests.graph.stack import Stack, metadata_of


def command(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("spark")
def test_a_paused_table_is_left_out_until_it_is_resumed(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    stack.produce(stack.users.first_wave(30))
    assert stack.run().success
    assert "users_serving: paused since" in command("pause", "users_serving", "--reason", "it is moved")
    before = stack.serving_rows()
    stack.produce(stack.users.second_wave(20))
    result = stack.run()
    assert result.success
    assert metadata_of(result, "tables", "users_serving")["paused"].endswith("it is moved")
    assert stack.serving_rows() == before
    assert stack.warehouse_differences() == []
    assert "it is moved" in command("status", "--json")
    assert "was not paused" in command("resume", "users_warehouse")
    assert "is written again" in command("resume", "users_serving")
    assert stack.run().success
    assert stack.serving_differences() == []
    unknown = CliRunner().invoke(main, ["pause", "users"])
    assert (unknown.exit_code, "written are: users_serving, users_warehouse" in unknown.output) == (1, True)


def test_pauses_are_kept_by_name_whatever_it_is(tmp_path) -> None:
    lake = Lake(str(tmp_path))
    assert pauses.paused(lake) == {}
    for name in ("orders", "db.orders/2", "bestellungen ü"):
        pauses.pause(lake, name, reason="r")
    since = pauses.paused(lake)["orders"].since
    pauses.pause(lake, "orders")
    assert (pauses.paused(lake)["orders"].since, pauses.paused(lake)["orders"].reason) == (since, "")
    assert set(pauses.paused(lake)) == {"orders", "db.orders/2", "bestellungen ü"}
    assert [pauses.resume(lake, "db.orders/2") for _ in range(2)] == [True, False]


def test_a_pause_that_is_cut_off_leaves_the_one_before_and_no_half_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step that writes a table reads all files."""
    lake = Lake(str(tmp_path))
    pauses.pause(lake, "kept", reason="it is moved")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    for name in ("kept", "other"):
        with pytest.raises(KeyboardInterrupt):
            pauses.pause(lake, name, reason="nobody says")
    found = pauses.paused(lake)
    assert {name: item.reason for name, item in found.items()} == {"kept": "it is moved"}
    assert pauses.resume(lake, "kept")
    assert pauses.paused(lake) == {}
