"""All SQL of a project to tables and inserts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Insert, Table
from upsert_platform.sql.declarations import Declarations, InsertDeclaration, ViewDeclaration
from upsert_platform.sql.hinted_tables import with_hinted_tables
from upsert_platform.sql.hints import hint_warnings
from upsert_platform.sql.inserted_values import with_values
from upsert_platform.sql.merged_inserts import resolve_inserts
from upsert_platform.sql.planning.from_clause import View
from upsert_platform.sql.planning.select import plan_select
from upsert_platform.sql.query import Relation, read_query, relation_of
from upsert_platform.sql.reader import Fault, NeedsState, ToldFault
from upsert_platform.sql.table_names import unknown_catalogs
from upsert_platform.sql.tables import Tables, resolve_tables
from upsert_platform.sql.user_functions import declared_functions, find_functions


@dataclass(frozen=True)
class Scripts:
    """The declarations of SQL files.

    Attributes:
        tables: by name, in order of declaration.
        inserts: those without errors.
        mentioned: tables that faulty inserts name; they are in use.
        keyed: tables that declare a primary key, a faulty one too.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    inserts: tuple[Insert, ...] = ()
    mentioned: frozenset[str] = frozenset()
    keyed: frozenset[str] = frozenset()


def resolve(
    found: Declarations,
    *,
    derive: Callable[[Mapping[str, Table]], Declarations] | None = None,
    tell_before: Collection[str] = (),
) -> tuple[Scripts, list[Problem]]:
    """Joins the declarations of all files of a project.

    Args:
        derive: given the declared tables, makes further declarations (a pipeline copies the columns of its source).
        tell_before: connectors of tables that need to know what rows were before a change.
    """
    functions, faults = find_functions(found.functions)
    found.problems += faults
    with declared_functions(functions):
        return _resolve(found, derive, tell_before)


def _resolve(
    found: Declarations, derive: Callable[[Mapping[str, Table]], Declarations] | None, tell_before: Collection[str]
) -> tuple[Scripts, list[Problem]]:
    hinted = with_hinted_tables(found)
    resolved, problems = resolve_tables(found.tables)
    if derive is not None:
        found.add(derive({name: table for name, table in resolved.by_name.items() if name not in resolved.faulty}))
        resolved, problems = resolve_tables(found.tables)
    tables = resolved.by_name
    # A table that is declared whole needs no catalog: where scripts come from a console, the console has it.
    of_tables = {table.path[0] for table in found.tables if table.path is not None}
    problems = [
        *found.problems,
        *unknown_catalogs(found.named_catalogs, {*found.catalogs, *of_tables}),
        *hinted,
        *problems,
    ]
    views = _Views(found.views, resolved, problems)
    views.resolve_all()
    inserts: list[Insert] = []
    together: dict[str, list[InsertDeclaration]] = {}
    for declaration in with_values(found.inserts, resolved, problems):
        target = tables.get(declaration.target)
        if target is not None and target.connector in tell_before:
            declaration = replace(declaration, tells_before=True)
        together.setdefault(declaration.target, []).append(declaration)
    for declarations in together.values():
        insert, faults = resolve_inserts(declarations, resolved, views.find, views.declared)
        problems += faults
        if insert is not None:
            inserts.append(insert)
    faulty = len(inserts) < len({item.target for item in found.inserts})
    words = found.unread | (_mentioned(found) if faulty else set())
    mentioned = frozenset(name for name in tables if name in words or name.rpartition(".")[2] in words)
    return Scripts(tables, tuple(inserts), mentioned, resolved.keyed), problems


def _mentioned(found: Declarations) -> set[str]:
    """Every name in an insert, and in the views that one names."""
    names = {item.target for item in found.inserts}
    names |= {token.value for item in found.inserts for token in item.query}
    waiting = list(found.views)
    while named := [view for view in waiting if view.name in names or view.name.rpartition(".")[2] in names]:
        waiting = [view for view in waiting if view not in named]
        names |= {token.value for view in named for token in view.query}
    return names


class _Views:
    """Views by name, resolved when first read."""

    def __init__(self, views: list[ViewDeclaration], tables: Tables, problems: list[Problem]) -> None:
        self.tables = tables
        self.problems = problems
        self.views: dict[str, ViewDeclaration] = {}
        self.done: dict[str, Relation | NeedsState | None] = {}
        self.reading: set[str] = set()
        for view in views:
            if view.name in self.views or view.name in tables.by_name:
                problems.append(Problem(f"'{view.name}' is declared twice; rename one", view.location))
            self.views.setdefault(view.name, view)
            for message, line in hint_warnings(view.query):
                place = SourceLocation(view.location.file, line)
                problems.append(Problem(f"view '{view.name}': {message}", place, "warning"))

    def resolve_all(self) -> None:
        for name in self.views:
            with contextlib.suppress(ToldFault, NeedsState):
                self.find(name)

    def declared(self, name: str) -> Table | View | None:
        """A table, or a view as it is written; None if there is none of that name.

        Raises:
            Fault: it cannot be read.
        """
        if name in self.views and name not in self.tables.by_name:
            with contextlib.suppress(NeedsState):
                self.find(name)
            view = self.views[name]
            return View(view.query, view.columns)
        return self.tables.by_name.get(name) if self.find(name) is not None else None

    def find(self, name: str) -> Relation | None:
        """The relation of a table or view; None if there is none of that name.

        Raises:
            Fault: it cannot be read.
        """
        if name in self.tables.faulty:
            raise ToldFault
        if name in self.tables.elided:
            raise Fault(f"columns of table '{name}' were left out (...); write them", 0)
        if name in self.tables.by_name:
            return relation_of(self.tables.by_name[name])
        view = self.views.get(name)
        if view is None:
            return None
        if name in self.reading:
            raise Fault(f"view '{name}' reads itself", view.location.line)
        if name not in self.done:
            self.reading.add(name)
            self.done[name] = self._resolve_or_tell(view)
            self.reading.discard(name)
        found = self.done[name]
        if found is None:
            raise ToldFault
        if isinstance(found, NeedsState):
            raise found
        return found

    def _resolve_or_tell(self, view: ViewDeclaration) -> Relation | NeedsState | None:
        try:
            try:
                return self._resolve(view)
            except NeedsState as needs:
                columns = [name for name, _ in plan_select(view.query, self.declared).columns]
                if view.columns and len(view.columns) != len(columns):
                    count = f"{len(view.columns)} column names for {len(columns)} columns"
                    raise Fault(count, view.location.line) from None
                _check_once(view.columns or columns, view)
                return needs
        except ToldFault:
            return None
        except Fault as fault:
            place = SourceLocation(view.location.file, fault.line)
            self.problems.append(Problem(f"view '{view.name}': {fault.message}", place))
            return None

    def _resolve(self, view: ViewDeclaration) -> Relation:
        relation = read_query(view.query, self.find)
        names = [name for name, _ in relation.columns]
        if view.columns:
            if len(view.columns) != len(names):
                raise Fault(f"{len(view.columns)} column names for {len(names)} columns", view.location.line)
            names = list(view.columns)
        _check_once(names, view)
        columns = tuple((name, value) for name, (_, value) in zip(names, relation.columns, strict=True))
        return Relation(relation.source, columns, relation.predicate)


def _check_once(names: Sequence[str], view: ViewDeclaration) -> None:
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise Fault(f"two columns are named '{twice}'; give one an alias", view.location.line)
