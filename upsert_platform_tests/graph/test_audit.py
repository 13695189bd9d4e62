"""`upsert-platform audit`: what it says of tables on real servers, equal and not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.sync import audit as audit_module
from upsert_platform_tests.graph.stack import Stack

pytestmark = pytest.mark.whole_runs


def audit(stack: Stack, table: str, *arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["audit", table, "--project", str(stack.project), *arguments])
    return found.exit_code, found.output


@pytest.fixture
def synced(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    stack.produce(stack.users.first_wave(60))
    stack.produce(stack.users.second_wave(40))
    stack.produce([(b'{"user_id":7}', b'{"user_id":7,"balance":"much"}'), (b"?", b"{}")])
    assert stack.run().success
    return stack


def test_audit_tells_equal_tables_and_what_differs(synced: Stack) -> None:
    rows = len(synced.users.rows)
    code, text = audit(synced, "users_serving")
    assert (code, f"users_serving: equal; {rows} rows" in text) == (0, True), text
    assert "2 undecodable" in text
    code, text = audit(synced, "users_warehouse", "--json")
    found = json.loads(text)
    assert (code, found["equal"], found["batch"], found["behind"]) == (0, True, 1, 0)
    assert found["equal_rows"] == sum(row["region"] != "test" for row in synced.users.rows.values())

    _spoil(synced)
    code, text = audit(synced, "users_serving", "--limit", "2")
    assert code == 1
    assert f"users_serving: differs; {rows - 2} rows" in text
    assert "1 row missing" in text
    assert "1 row should not be there" in text
    assert "1 row with other values" in text
    assert "name: expected" in text or "extra" in text or "missing" in text

    # Records that the table has not applied are not differences.
    synced.produce(synced.users.second_wave(10))
    found = json.loads(audit(synced, "users_warehouse", "--json")[1])
    assert (found["equal"], found["batch"]) == (True, 1)


def test_rows_that_are_written_while_they_are_audited_are_no_differences(
    synced: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the position and the rows a sync applies a batch; a row that no record explains is wrong."""
    audited = audit_module.consume
    synced.produce(synced.users.second_wave(30))

    def meanwhile(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(audit_module, "consume", audited)
        found = list(audited(*arguments, **more))
        assert synced.run().success
        return found

    monkeypatch.setattr(audit_module, "consume", meanwhile)
    code, text = audit(synced, "users_serving", "--json")
    found = json.loads(text[text.index("{") :])
    assert (code, found["equal"], found["batch"]) == (0, True, 1), text
    assert found["moving"] > 0, "the batch changed nothing"
    assert [found[name] for name in ("missing", "extra", "stale")] == [0, 0, 0]
    _spoil(synced)
    code, text = audit(synced, "users_serving")
    assert (code, "1 row missing" in text) == (1, True), text


def _spoil(stack: Stack) -> None:
    """Takes a row away, changes one, adds one, with the vendor's client."""
    from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

    client = OTSClient(
        stack.variables["UPSERT_TABLESTORE_ENDPOINT"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        stack.variables["UPSERT_TABLESTORE_INSTANCE"],
        logger_name=None,
    )
    ignored = Condition(RowExistenceExpectation.IGNORE)
    first, second = sorted(stack.users.rows)[:2]
    client.delete_row(stack.table, Row([("user_id", first)]), ignored)
    client.update_row(stack.table, Row([("user_id", second)], {"PUT": [("name", "another")]}), ignored)
    client.put_row(stack.table, Row([("user_id", 999_999)], [("name", "new")]), ignored)


def test_audit_names_what_it_knows(synced: Stack) -> None:
    code, text = audit(synced, "users")
    assert code == 2
    assert "written are: users_serving, users_warehouse" in text
