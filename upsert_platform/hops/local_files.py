"""Which batches of a changelog are few enough for this process to read by itself."""

from __future__ import annotations

from upsert_platform.changelog.live_files import LiveFile
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.hops.on_demand import OnDemand


def rows_by_accounts(store: ChangelogStore, *, after: int, upto: int) -> int:
    """Change rows of the batches after `after` and up to `upto`, by their accounts. No JVM."""
    accounts = store.accounts(after=after, upto=upto)
    return sum(account.rows for ranges in accounts.values() for account in ranges)


def local_files(spark: OnDemand, store: ChangelogStore, *, after: int, upto: int) -> list[LiveFile] | None:
    """The files that may hold these batches; None where reading them is too much for this process. No JVM."""
    files = [item for item in store.files() if item.may_hold(after=after, upto=upto)]
    size = sum(item.size for item in files)
    if not spark.is_local(0, size):
        return None
    rows = sum(spark.rows + 1 if item.rows is None else item.rows for item in files)
    if not spark.is_local(rows, size):  # merged files hold other batches too; of queries there are no accounts
        evenly = sum(item.rows_between(after=after, upto=upto) for item in files)
        rows = max(rows_by_accounts(store, after=after, upto=upto), evenly)
    return files if spark.is_local(rows, size) else None
