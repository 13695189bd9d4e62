"""How upsert sessions end: commit, abort, tables that change meanwhile, a killed server (catalogue 6.1, 8 to 22)."""

from __future__ import annotations

from typing import Any

import pytest
from odps.errors import NoSuchPartition, NoSuchTable

from upsert_platform_tests.local.maxcompute.upsert_sessions import Rows, code_of, create, upsert


def test_08_abort(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("0", "v1")])
    session.abort()
    assert code_of(lambda: upsert(session, [("1", "v1")])) == "SessionAborted"
    assert code_of(session.commit) == "SessionAborted"
    assert rows(f"select * from {name}") == []


def test_09_abort_through_another_handle(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    tunnel.create_upsert_session(name, upsert_id=session.id).abort()
    assert code_of(lambda: upsert(session, [("1", "v1")])) == "SessionAborted"


@pytest.mark.parametrize("other", [pytest.param(False, id="10-same-handle"), pytest.param(True, id="11-other-handle")])
def test_flush_after_commit(odps: Any, tunnel: Any, name: str, rows: Rows, other: bool) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("a", "v1")])
    (tunnel.create_upsert_session(name, upsert_id=session.id) if other else session).commit()
    assert code_of(lambda: upsert(session, [("b", "v1")])) == "SessionStatusConflict"
    assert rows(f"select * from {name}") == [("a", "v1")]


def test_12_empty_session(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    upsert(session := tunnel.create_upsert_session(name), [("a", "v1")])
    session.commit()
    session = tunnel.create_upsert_session(name)
    session.commit()
    session.commit()
    assert rows(f"select * from {name}") == [("a", "v1")]
    assert odps.get_table(name).cdc_latest_version == 2


def test_13_missing_table(tunnel: Any) -> None:
    with pytest.raises(NoSuchTable):
        tunnel.create_upsert_session("there_is_no_such_table")


def test_14_missing_partition(odps: Any, tunnel: Any, name: str) -> None:
    table = create(odps, name, partition="pt string")
    with pytest.raises(NoSuchPartition):
        tunnel.create_upsert_session(name, partition_spec="pt='a'")
    assert list(table.partitions) == []


def test_17_flush_without_rows(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    session.open_upsert_stream().flush()
    session.commit()
    assert rows(f"select * from {name}") == []


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        pytest.param(["drop table {t}"], "NoSuchTable", id="18-table-dropped"),
        pytest.param(["alter table {t} rename to {t}_renamed"], "NoSuchTable", id="19-table-renamed"),
        pytest.param(
            [
                "drop table {t}",
                "create table {t} (k string not null, v string, primary key (k)) partitioned by (pt string)"
                " tblproperties ('transactional'='true')",
            ],
            "TableModified",
            id="20-table-recreated",
        ),
        pytest.param(["alter table {t} drop partition (pt='a')"], "NoSuchPartition", id="21-partition-dropped"),
        pytest.param(
            ["alter table {t} partition (pt='a') rename to partition (pt='b')"],
            "NoSuchPartition",
            id="22-partition-renamed",
        ),
    ],
)
def test_definition_changes_before_commit(odps: Any, tunnel: Any, name: str, statements: list[str], code: str) -> None:
    create(odps, name, partition="pt string").create_partition("pt='a'")
    session = tunnel.create_upsert_session(name, partition_spec="pt='a'")
    upsert(session, [("a", "v1")])
    for statement in statements:
        odps.execute_sql(statement.format(t=name))
    assert code_of(session.commit) == code


def test_a_session_survives_a_killed_server(odps: Any, tunnel: Any, server: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("a", "v1")])
    server.restart()
    upsert(session, [("b", "v1")])
    session.commit()
    server.restart()
    session.reload()
    assert session.status.value == "COMMITTED"
    assert rows(f"select k from {name}") == [("a",), ("b",)]
