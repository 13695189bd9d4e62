"""Clients of a destination: the project, MaxStorage of the table and of its control table, the upsert tunnel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.client import Client, TableState
from upsert_platform.maxcompute.committing import Committing, MaxStorageCommitting, TunnelCommitting
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.control import ControlTable, destination_key
from upsert_platform.maxcompute.maxstorage import MaxStorage
from upsert_platform.maxcompute.names import TableName
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.tunnel import UpsertTunnel

if TYPE_CHECKING:
    from upsert_platform.maxcompute.read_back import Reading
    from upsert_platform.maxcompute.sending import Sending


class Clients:
    """Clients of one declared table, each opened when it is first needed."""

    def __init__(self, table: MaxComputeTable) -> None:
        self.table = table
        self.project = Client(Connection.of(table.settings))
        self._by_tunnel = table.settings.api is WriteApi.TUNNEL
        self._storages: dict[TableName, MaxStorage] = {}
        self._tunnel: UpsertTunnel | None = None

    def close(self) -> None:
        """Releases everything that was opened. Idempotent."""
        for storage in self._storages.values():
            storage.close()
        self._storages = {}
        if self._tunnel is not None:
            self._tunnel.close()
            self._tunnel = None
        self.project.close()

    def control(self, *, label: str) -> ControlTable:
        """The control record of the table."""
        target, settings = self.table.target, self.table.settings
        name = target.sibling(settings.control_table)
        return ControlTable(
            self.project,
            name,
            key=destination_key(target, self.table.partitions.static_text),
            label=label,
            storage=None if self._by_tunnel else lambda: self.storage(name),
        )

    def storage(self, name: TableName) -> MaxStorage:
        """MaxStorage of a table.

        Raises:
            EndpointError: the project does not answer.
        """
        if name not in self._storages:
            self._storages[name] = MaxStorage(self.project.connection, self.project.tunnel_endpoint(), name)
        return self._storages[name]

    def tunnel(self) -> UpsertTunnel:
        """The upsert tunnel of the table.

        Raises:
            EndpointError: the project does not answer.
        """
        if self._tunnel is None:
            self._tunnel = UpsertTunnel(self.project.connection, self.project.tunnel_endpoint(), self.table.target)
        return self._tunnel

    def committing(self, api: WriteApi) -> Committing:
        """Finishes commits that were recorded for an interface."""
        if api is WriteApi.TUNNEL:
            return TunnelCommitting(self.tunnel(), self.table)
        return MaxStorageCommitting(self.storage(self.table.target), self.table)

    def sending(self, actual: TableState, *, replaces: bool) -> Sending:
        """Sends a batch by the declared interface."""
        from upsert_platform.maxcompute.sending import MaxStorageSending, TunnelSending

        if self._by_tunnel:
            return TunnelSending(self.table, actual, self.tunnel(), self.project)
        return MaxStorageSending(self.table, actual, self.storage(self.table.target), replaces=replaces)

    def reading(self, actual: TableState) -> Reading:
        """Reads the table by the declared interface."""
        from upsert_platform.maxcompute.read_back import Reading

        storage = None if self._by_tunnel else self.storage(self.table.target)
        return Reading(self.table, actual, self.project, storage)
