"""Names of MaxCompute objects: a table in a project (and schema), and how they are written in SQL."""

from __future__ import annotations

from dataclasses import dataclass

from upsert_platform.maxcompute.options import NAME_PATTERN


@dataclass(frozen=True, slots=True)
class TableName:
    """A table.

    Attributes:
        schema: None in projects without schemas, the two-tier model.
        home: project in which SQL runs; names in other projects are written in full.
    """

    project: str
    schema: str | None
    table: str
    home: str

    def __str__(self) -> str:
        return ".".join(part for part in (self.project, self.schema, self.table) if part)

    @property
    def sql(self) -> str:
        """The name as SQL that runs in `home` needs it."""
        parts = [self.schema, self.table] if self.schema else [self.table]
        if self.project != self.home:
            parts.insert(0, self.project)
        return ".".join(quote(part) for part in parts if part)

    def sibling(self, table: str) -> TableName:
        """Another table of the same project and schema."""
        return TableName(self.project, self.schema, table, self.home)


def parse_table_name(text: str, *, project: str, namespace_schema: bool) -> TableName:
    """Reads ``[project.][schema.]table``.

    Args:
        project: default project, in which SQL runs.
        namespace_schema: whether a name of two parts is ``schema.table`` (else ``project.table``), and a bare name is
            in the schema ``default``.

    Raises:
        ValueError: not one to three names.
    """
    parts = [part.strip().strip("`") for part in text.split(".")]
    if not 1 <= len(parts) <= 3 or not all(NAME_PATTERN.fullmatch(part) for part in parts):
        raise ValueError("takes '[project.][schema.]table', each a name of letters, digits and _")
    match parts:
        case [table]:
            return TableName(project, "default" if namespace_schema else None, table, project)
        case [first, table] if namespace_schema:
            return TableName(project, first, table, project)
        case [first, table]:
            return TableName(first, None, table, project)
    return TableName(parts[0], parts[1], parts[2], project)


def quote(name: str) -> str:
    """An identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"


def sql_text(value: str) -> str:
    """A string literal in SQL; MaxCompute reads a backslash as an escape."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
