"""Shared state of all operations: the store, the project's name, and running work."""

from __future__ import annotations

import time
from pathlib import Path

from upsert_platform.local.maxcompute.auth import Authenticator
from upsert_platform.local.maxcompute.errors import no_such_project
from upsert_platform.local.maxcompute.rest.runner import Runner
from upsert_platform.local.maxcompute.sql.context import Context
from upsert_platform.local.maxcompute.storage.catalogue import DEFAULT_SCHEMA, Catalogue
from upsert_platform.local.maxcompute.storage.readers import Readers
from upsert_platform.local.maxcompute.storage.sessions import Sessions
from upsert_platform.local.maxcompute.storage.store import Store


class Service:
    """One project on one data directory; `close` ends it."""

    def __init__(
        self,
        data: Path,
        *,
        project: str,
        access_id: str,
        secret: str,
        three_tier: bool = False,
        threads: int = 2,
        drop: bool = False,
        strict_buckets: bool = False,
    ) -> None:
        self.project = project
        self.owner = f"ALIYUN${access_id}"
        self.three_tier = three_tier
        self.started = time.time()
        self.authenticator = Authenticator(access_id, secret)
        self.store = Store(data, threads=threads)
        self.sessions = Sessions(self.store)
        self.readers = Readers()
        self.runner = Runner()
        self.drop = drop
        self.dropped_bytes = 0
        self.strict_buckets = strict_buckets
        self.misrouted_rows = 0

    @property
    def catalogue(self) -> Catalogue:
        return self.store.catalogue

    def check_project(self, name: str) -> None:
        """Returns when the name is this project's.

        Raises:
            ServiceError: NoSuchProject.
        """
        if name.lower() != self.project.lower():
            raise no_such_project(name)

    def context(self, *, schema: str = DEFAULT_SCHEMA) -> Context:
        """Return the context in which SQL statements resolve names."""
        return Context(self.store, self.project, self.owner, schema, namespace=self.three_tier)

    def close(self) -> None:
        self.runner.close()
        self.store.close()
