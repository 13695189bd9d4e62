"""The context of a statement: its user, the namespace of names, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import no_such_project, no_such_schema, semantic_error
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.storage.catalogue import DEFAULT_SCHEMA
from upsert_platform.local.maxcompute.storage.store import Store
from upsert_platform.local.maxcompute.types import DataType


@dataclass(frozen=True)
class Context:
    """Attributes:
    namespace: the three-tier model is on, so ``a.b`` is schema and table, not project and table.
    """

    store: Store
    project: str
    owner: str
    schema: str = DEFAULT_SCHEMA
    namespace: bool = False

    def resolve(self, name: tuple[str, ...]) -> tuple[str, str]:
        """Schema and table of a dotted name.

        Raises:
            ServiceError: it names another project, or a schema that does not exist.
        """
        project, schema = self.project, self.schema
        match name:
            case (table,):
                pass
            case (first, table) if self.namespace:
                schema = first
            case (project, table):
                schema = DEFAULT_SCHEMA
            case (project, schema, table):
                pass
            case _:
                raise semantic_error(f"'{'.'.join(name)}' is not a table name")
        if project.lower() != self.project.lower():
            raise no_such_project(project)
        if schema.lower() not in self.store.catalogue.schema_names():
            raise no_such_schema(schema)
        return schema.lower(), table.lower()

    def table(self, name: tuple[str, ...]) -> Table:
        """The table of a dotted name.

        Raises:
            ServiceError: NoSuchTable, or it is a view.
        """
        return self.store.catalogue.table(*self.resolve(name))

    def relation(self, name: tuple[str, ...]) -> Table:
        """The table or view of a dotted name.

        Raises:
            ServiceError: NoSuchTable.
        """
        return self.store.catalogue.relation(*self.resolve(name))


@dataclass(frozen=True)
class Result:
    """The answer of a statement: rows with named and typed columns, or a text."""

    columns: tuple[tuple[str, DataType], ...] = ()
    rows: pa.Table | None = None
    text: str = ""
    affected: int = 0
