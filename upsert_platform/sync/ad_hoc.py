"""A SELECT over the nodes of a project: read only, bounded, carried out by DuckDB in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.options import nearest
from upsert_platform.sync.relations import KINDS, MOST_ROWS, Load

if TYPE_CHECKING:
    import duckdb

_MEMORY: Final = "2GB"
_MISSING: Final = re.compile(r"Table with name (\S+) does not exist")
_VIEW: Final = "__upsert_relation_"


class QueryError(UpsertPlatformError):
    """A statement cannot be carried out; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The first rows of a result.

    Attributes:
        columns: names.
        rows: each value as text, or as JSON where that was asked for; null as None.
        more: whether the result has further rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    more: bool

    def objects(self) -> Iterator[str]:
        """Yield each row of JSON values as an object."""
        for row in self.rows:
            members = zip(self.columns, row, strict=True)
            inner = (f"{json.dumps(name, ensure_ascii=False)}:{text or 'null'}" for name, text in members)
            yield "{" + ",".join(inner) + "}"


class AdHoc:
    """Answers statements; a node is read once, when a statement first names it. Close it.

    Args:
        loads: kind and name of a node to what reads it; see `relations`.
        most: rows of a node that are read, at most.
    """

    def __init__(self, loads: Mapping[tuple[str, str], Load], *, most: int = MOST_ROWS) -> None:
        import duckdb

        self._loads = loads
        self._most = most
        self._loaded: set[tuple[str, str]] = set()
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")
        for kind in KINDS:
            self._connection.execute(f'CREATE SCHEMA "{kind}"')
        # Statements reach what is registered here, and no file, address or setting.
        for setting in ("enable_external_access", "python_enable_replacements", "autoload_known_extensions"):
            self._connection.execute(f"SET {setting} = false")
        self._connection.execute(f"SET memory_limit = '{_MEMORY}'")
        self._connection.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Releases what was read. Idempotent."""
        self._connection.close()

    @property
    def names(self) -> list[str]:
        """Return the names available to statements: each node with its kind, and alone if that is unambiguous."""
        bare = dict.fromkeys(name for _, name in self._loads)
        return [*bare, *(f"{kind}.{name}" for kind, name in self._loads)]

    def answer(self, statement: str, *, limit: int, as_json: bool = False) -> Answer:
        """Carry out a SELECT.

        Args:
            limit: rows of the result, at most.
            as_json: values are JSON.

        Raises:
            QueryError: it is no single SELECT, or DuckDB refuses it.
            UpsertPlatformError: a node cannot be read, or is too large.
        """
        import duckdb

        try:
            for key in self._named(statement):
                self._load(key)
            found = self._connection.sql(statement)
            columns = tuple(found.columns)
            kinds = [str(kind) if as_json else "" for kind in found.types]
            shown = ", ".join(_shown(name, kind) for name, kind in zip(columns, kinds, strict=True))
            texts = found.limit(limit + 1).project(shown).fetchall()
        except duckdb.Error as error:
            raise QueryError(_told(str(error), self.names)) from None
        return Answer(columns, tuple(texts[:limit]), len(texts) > limit)

    def _named(self, statement: str) -> list[tuple[str, str]]:
        """The nodes that a statement names."""
        import duckdb

        parsed = self._connection.extract_statements(statement)
        if len(parsed) != 1 or parsed[0].type != duckdb.StatementType.SELECT:
            raise QueryError("one SELECT at a time: a query reads, and changes nothing")
        (text,) = self._connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0]
        tree = json.loads(text)
        if tree.get("error"):
            raise QueryError(str(tree.get("error_message", "the statement cannot be read")))
        found = []
        for schema, name in _tables(tree):
            kinds = [schema] if schema else KINDS
            key = next(((kind, name) for kind in kinds if (kind, name) in self._loads), None)
            if key is not None:
                found.append((schema, key))
        for schema, (kind, name) in found:
            if not schema and name not in self._loaded_bare():
                self._load((kind, name))
                quoted = _quoted(name)
                self._connection.execute(f"CREATE VIEW {quoted} AS SELECT * FROM {_quoted(kind)}.{quoted}")
        return [key for _, key in found]

    def _loaded_bare(self) -> set[str]:
        shown = self._connection.execute("SELECT view_name FROM duckdb_views() WHERE schema_name = 'main'").fetchall()
        return {name for (name,) in shown}

    def _load(self, key: tuple[str, str]) -> None:
        if key in self._loaded:
            return
        kind, name = key
        view = f"{_VIEW}{len(self._loaded)}"
        self._connection.register(view, self._loads[key](self._most))
        self._connection.execute(f"CREATE VIEW {_quoted(kind)}.{_quoted(name)} AS SELECT * FROM {view}")
        self._loaded.add(key)


def _tables(tree: Any) -> Iterator[tuple[str, str]]:
    """Schema and name of every table that a parsed statement reads."""
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield tree.get("schema_name", ""), tree["table_name"]
        for value in tree.values():
            yield from _tables(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _tables(value)


def _shown(name: str, kind: str) -> str:
    """A column as text; as JSON if its type is given, decimals with all their digits."""
    as_text = not kind or kind.startswith("DECIMAL")
    return f"CAST({_quoted(name)} AS VARCHAR)" if as_text else f"to_json({_quoted(name)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _told(text: str, names: Sequence[str]) -> str:
    """DuckDB's message, with what there is where a name is not known."""
    missing = _MISSING.search(text)
    if missing is None:
        return text.strip()
    near = nearest(missing[1], names).rstrip("?")  # DuckDB's own guess knows tables of its own alone
    return f"there is no table '{missing[1]}'{near}; there are: {', '.join(names)}"
