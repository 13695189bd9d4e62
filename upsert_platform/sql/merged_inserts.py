"""Several INSERT INTO of one table as one query: the union of their rows, told apart by the target's key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, Insert, Table
from upsert_platform.core.plan import (
    Expression,
    Field,
    Filter,
    Materialize,
    Merge,
    Node,
    Project,
    Scan,
    Union,
    Window,
    column,
)
from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.declarations import InsertDeclaration
from upsert_platform.sql.insert import InsertResolver, declared_order
from upsert_platform.sql.native import native_form
from upsert_platform.sql.planning.arrivals import last_arrivals
from upsert_platform.sql.planning.closing import final_windows, window_closings, window_ends
from upsert_platform.sql.planning.from_clause import Find
from upsert_platform.sql.planning.queries import PlannedQuery, plan_query, query_name
from upsert_platform.sql.planning.scope import Relation, as_type, common_type
from upsert_platform.sql.query import Lookup
from upsert_platform.sql.reader import Fault, ToldFault
from upsert_platform.sql.rendered import STRINGS, Rendered
from upsert_platform.sql.session_settings import STATE_TTL
from upsert_platform.sql.tables import Tables


def resolve_inserts(
    declarations: Sequence[InsertDeclaration], tables: Tables, lookup: Lookup, find: Find
) -> tuple[Insert | None, list[Problem]]:
    """Makes an Insert of all declarations of one target.

    Returns:
        The insert (None when there are errors), and the problems.
    """
    first = declarations[0]
    target = tables.by_name.get(first.target)
    if len(declarations) == 1:
        return InsertResolver(first, tables, lookup, find).resolve()
    if target is None or first.target in tables.faulty | tables.elided:
        found = (InsertResolver(item, tables, lookup, find).resolve()[1] for item in declarations)
        return None, [problem for problems in found for problem in problems]
    overwriting = next((item for item in declarations if item.overwrite), None)
    if overwriting is not None:
        message = f"INSERT OVERWRITE {target.name}: replaces what another INSERT writes; keep one of them"
        return None, [Problem(message, overwriting.location)]
    return _merged(declarations, target, tables, lookup, find)


def _merged(
    declarations: Sequence[InsertDeclaration], target: Table, tables: Tables, lookup: Lookup, find: Find
) -> tuple[Insert | None, list[Problem]]:
    problems: list[Problem] = []
    branches: list[Node] = []
    if len({item.state_ttl for item in declarations}) > 1:
        message = (
            f"the statements for '{target.name}' are one query, and '{STATE_TTL}' is not the same for all of them: SET"
            " it once before the first"
        )
        return None, [Problem(message, declarations[-1].location)]
    for declaration in declarations:
        resolver = InsertResolver(declaration, tables, lookup, find)
        try:
            branch = _Branch(resolver, target, branches).node()
            branches += [branch] if branch is not None else []
        except ToldFault:
            return None, problems
        except Fault as fault:
            resolver.error(fault.message, SourceLocation(declaration.location.file, fault.line))
        problems += resolver.problems
    if any(problem.severity == "error" for problem in problems):
        return None, problems
    node = _union(branches, target)
    columns = tuple(zip((item.name for item in declared_order(target)), node.fields, strict=True))
    sql = ";\n".join(item.sql for item in declarations)
    whole = replace(declarations[0], sql=sql, columns=tuple(name for name, _ in columns), partition={})
    resolver = InsertResolver(whole, tables, lookup, find)
    planned = PlannedQuery(Relation(node, columns))
    given = resolver.match_columns(target, planned.relation(query_name(target.name)))
    insert = resolver.insert_result(planned, target, given)
    return insert, [*problems, *resolver.problems]


def _union(branches: Sequence[Node], target: Table) -> Node:
    """The branches with columns of the same types."""
    kinds: list[LogicalType] = []
    for at, wanted in enumerate(declared_order(target)):
        shared: LogicalType | None = branches[0].fields[at].type
        for branch in branches[1:]:
            shared = common_type(shared, branch.fields[at].type) if shared is not None else None
        assert wanted.type is not None
        kinds.append(shared if shared is not None else replace(wanted.type, nullable=True))
    shaped = tuple(
        Project(
            branch,
            tuple((field.name, as_type(column(field), kind)) for field, kind in zip(branch.fields, kinds, strict=True)),
        )
        for branch in branches
    )
    return Merge(shaped, target.primary_key) if target.primary_key else Union(shaped)


class _Branch:
    """One insert as a branch of the union.

    Args:
        before: branches before it.
    """

    def __init__(self, resolver: InsertResolver, target: Table, before: Sequence[Node]) -> None:
        self.resolver = resolver
        self.target = target
        self.before = before

    def node(self) -> Node | None:
        """Its rows with the target's columns; None where there are errors.

        Raises:
            Fault: it cannot be a branch.
        """
        target, planned = self.target, self._planned()
        given = self.resolver.match_columns(target, planned.relation(query_name(target.name)))
        if given is None:
            return None
        for name, value in given.items():
            if name in target.primary_key:
                self.resolver.check_key_type(value, target.column(name), keyed=False)
            else:
                self.resolver.check_type(value, target.column(name))
        if any(problem.severity == "error" for problem in self.resolver.problems):
            return None
        key = {name: given[name].column for name in target.primary_key if given[name].constant is None}
        checked = self.resolver.check_rows(planned, target, key)
        if checked is None:
            return None
        planned, shared = checked
        fields = {field.name: field for _, field in planned.found.columns}
        columns = tuple(
            (item.name, self._expression(given.get(item.name), item, fields)) for item in declared_order(target)
        )
        node = planned.found.node
        if shared:
            return Materialize(Project(node, columns), target.primary_key)
        if not node.appends or not target.primary_key or _is_of_one_table(node):
            return Project(node, columns)
        return last_arrivals(Project(node, columns), target.primary_key)

    def _planned(self) -> PlannedQuery:
        """The query; its windows have clocks of their own where those of a branch before it close by another time."""
        declaration, find = self.resolver.declaration, self.resolver.find
        planned = plan_query(declaration.query, find, lateness=declaration.lateness)
        taken = {name for item in self.before for name in self._apart(planned.found.node, item)}
        return plan_query(declaration.query, find, lateness=declaration.lateness, taken=taken) if taken else planned

    def _apart(self, node: Node, before: Node) -> frozenset[str]:
        """Names of ends of windows of a branch before this one that windows of this one must not have.

        A clock goes by the name of the end. Windows that close by the same time may share one: what their results are
        kept by, which names are a part of, stays as it was.
        """
        mine, its = window_closings(node), window_closings(before)
        if any(mine[name] != its[name] for name in mine.keys() & its.keys()):
            return frozenset(its)
        final = not self.target.primary_key and (not node.appends or final_windows(before))
        return window_ends(before) if final else frozenset()

    def _expression(self, value: Rendered | None, wanted: Column, fields: dict[str, Field]) -> Expression:
        assert wanted.type is not None
        if value is None:
            empty = replace(wanted.type, nullable=True)
            return Expression(f"CAST(NULL AS {spark_type(empty)})", empty, ("literal", None, empty))
        if value.column is not None:
            return column(fields[value.column])
        written = self.resolver.written(value, wanted)
        native = None
        if value.constant is not None and value.root in STRINGS and wanted.type.name is TypeName.STRING:
            native = ("literal", value.constant, wanted.type)
        types = {name: field.type for name, field in fields.items()}
        form = native_form(written.sql, types) if native is None else None
        return Expression(written.sql, wanted.type, native, form=form)


def _is_of_one_table(node: Node) -> bool:
    """Return whether each row comes from one record of one changelog, which alone orders them."""
    return isinstance(node, Scan) or (isinstance(node, (Project, Filter, Window)) and _is_of_one_table(node.input))
