"""A proof against a database tells the rows that it did not judge, in every form."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from upsert_platform.cli import prove as command
from upsert_platform.core.model import Options, SourceLocation, Table
from upsert_platform.graph import source_check
from upsert_platform.graph.keys import AS_DECLARED
from upsert_platform.mysql.position import LogPosition
from upsert_platform.proofs.database import DatabaseProof, Differences
from upsert_platform.sync.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

THROUGH = LogPosition("binlog.000001", 7)
PROOF = DatabaseProof(
    "serving", "shop.users", Differences(rows=9, through=THROUGH),
    Comparison(3, True, 9, missing=0, extra=0, stale=0, refused=2, expired=3, sample=()), THROUGH,
)  # fmt: skip


def test_refused_and_expired_rows_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def session(_: str) -> Iterator[tuple[Any, Any]]:
        yield None, lambda message: None

    monkeypatch.setattr("upsert_platform.cli.session.spark_session", session)
    monkeypatch.setattr("upsert_platform.proofs.database.prove_database", lambda *_, **__: PROOF)
    monkeypatch.setattr(command.lake, "default_lake", lambda: None)
    target: Any = SimpleNamespace(table=SimpleNamespace(name="serving"))
    command._prove_database(target, None, None, resume=False, examples=5, as_json=False)
    told = capsys.readouterr().out
    assert "serving: equal" in told
    assert "2 rows refused by the table; see 'quarantine list serving'" in told
    assert "3 rows not there, so old that the table may have let them expire" in told

    data = command.told_database_proof(PROOF)
    assert (data["equal"], data["refused"], data["expired"]) == (True, 2, 3)
    table = Table("serving", (), (), Options({}), SourceLocation("test"))
    metadata = source_check._proven_by_database(table, PROOF, AS_DECLARED).metadata
    assert (metadata["refused"].value, metadata["expired"].value) == (2, 3)
