"""Sums over accounts, by a loop over them; batches that came since the last look are read alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog import account_sums as module
from upsert_platform.changelog import rows
from upsert_platform.changelog.account_sums import account_sums
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.replays import ACCOUNT_TOPIC
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform_tests.changelog.test_store import declared


def _commit(store: ChangelogStore, *accounts: RangeAccount) -> None:
    head, schema = store.create(), rows.arrow_schema(store.table)
    told = [{rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: item.to_json()} for item in accounts]
    made = pa.Table.from_pylist(told, schema=schema.remove(0)).to_batches()
    files = write_rows(made, location=store.location, schema=schema, batch=head.batch + 1)
    assert store.append(files, head=head, positions=head.positions, run="run") is not None


@pytest.mark.parametrize(("batches", "texts"), [(1, 100), (2, 3), (100, 1)])
def test_sums_are_those_of_all_accounts(
    batches: int, texts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BATCHES", batches)
    monkeypatch.setattr(module, "_MOST_TEXTS", texts)
    store = ChangelogStore(str(tmp_path / "orders"), declared())
    assert (account_sums(store, store.create()).records, account_sums(store, store.create()).decoded) == (0, False)
    records = 0
    for batch in range(5):
        deleted = RangeAccount('a "topic"', 0, batch, batch + 3, records=3, kept=1, tombstones=1, skipped=(("no", 2),))
        _commit(store, deleted, RangeAccount(ACCOUNT_TOPIC, -1, 0, 7, records=7, kept=1, tombstones=1))
        records += 3
        found = account_sums(store, store.create())
        assert (found.records, found.decoded) == (records, False), "deletes alone are no decoded value"
    _commit(store, RangeAccount("b", 1, 0, 1, records=1, kept=1, rows=1))
    found = account_sums(store, store.create())
    assert (found.records, found.decoded) == (records + 1, True)
    module._known.clear()
    assert account_sums(store, store.create()) == found, "by a process that reads all of them"


def test_accounts_of_a_batch_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = ChangelogStore(str(tmp_path / "orders"), declared()), []
    for _ in range(3):
        _commit(store, RangeAccount("a", 0, 0, 2, records=2, kept=2, rows=2))
    first = store.create()
    assert account_sums(store, first).records == 6
    _commit(store, RangeAccount("a", 0, 2, 4, records=2, kept=2, rows=2))
    look = ChangelogStore.read_arrow

    def counted(self: ChangelogStore, columns: list[str], *, kind: str, after: int, upto: int) -> pa.Table:
        read.append((after, upto))
        return look(self, columns, kind=kind, after=after, upto=upto)

    monkeypatch.setattr(ChangelogStore, "read_arrow", counted)
    assert account_sums(store, store.create()).records == 8
    assert account_sums(store, store.create()).records == 8
    assert read == [(3, 4)]
    # A backup that is put back has fewer batches: what was known of later ones is forgotten.
    assert account_sums(store, first).records == 6
