"""The files of a span of batches that one task reads by itself, and where that task runs."""

from __future__ import annotations

from dataclasses import dataclass

from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.task_runner import TaskRunner
from upsert_platform.sync.on_demand import OnDemand


def rows_by_accounts(store: ChangelogStore, *, after: int, upto: int) -> int:
    """Change rows of the batches after `after` and up to `upto`, by their accounts. No JVM."""
    accounts = store.accounts(after=after, upto=upto)
    return sum(account.rows for ranges in accounts.values() for account in ranges)


@dataclass(frozen=True)
class FewFiles:
    """Files that may hold the rows of a span.

    Attributes:
        paths: relative to the changelog.
        rows: of the span, about.
        runner: of the task that reads them.
    """

    paths: tuple[str, ...]
    rows: int
    runner: TaskRunner


def few_files(spark: OnDemand, store: ChangelogStore, *, after: int, upto: int) -> FewFiles | None:
    """The files that may hold these batches; None where the work is divided among Spark's tasks. No JVM."""
    files = [item for item in store.files() if item.may_hold(after=after, upto=upto)]
    size = sum(item.size for item in files)
    if spark.runner(0, size) is None:
        return None
    rows = sum(spark.most_rows + 1 if item.rows is None else item.rows for item in files)
    if not spark.is_local(rows, size):  # merged files hold other batches too; of queries there are no accounts
        rows = max(rows_by_accounts(store, after=after, upto=upto), store.about_rows(after=after, upto=upto))
    runner = spark.runner(rows, size)
    return None if runner is None else FewFiles(tuple(item.path for item in files), rows, runner)
