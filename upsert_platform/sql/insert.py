"""INSERT INTO and INSERT OVERWRITE: a resolved query laid on the columns of its target."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Insert, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, quote_name
from upsert_platform.sql.casts import cast
from upsert_platform.sql.compatibility import can_write, keeps_apart
from upsert_platform.sql.declarations import InsertDeclaration
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.hints import hint_warnings
from upsert_platform.sql.planning.from_clause import Find, appends_alone
from upsert_platform.sql.planning.queries import (
    PlannedQuery,
    can_fail,
    crosses,
    keeping,
    plan_query,
    query_name,
    varying,
)
from upsert_platform.sql.query import Lookup, Relation, read_query
from upsert_platform.sql.reader import Fault, NeedsState, ToldFault
from upsert_platform.sql.rendered import STRINGS, Rendered, first_failure
from upsert_platform.sql.session_settings import STATE_TTL, Materializes
from upsert_platform.sql.tables import Tables

_FINAL: Final = (
    "the target has no PRIMARY KEY: rows of a window are written once, when the watermark has passed its end (and"
    " 'table.exec.emit.allow-lateness'); rows that come later are left out, and counted"
)


def written_columns(table: Table) -> tuple[Column, ...]:
    """Columns that an insert writes: the physical ones, then the metadata columns that are not VIRTUAL."""
    metadata = (column for column in table.columns if column.kind is ColumnKind.METADATA and not column.virtual)
    return (*table.physical_columns, *metadata)


def declared_order(table: Table) -> list[Column]:
    """The same columns in the order in which Flink matches a query without a column list."""
    return [
        column
        for column in table.columns
        if column.kind is ColumnKind.PHYSICAL or (column.kind is ColumnKind.METADATA and not column.virtual)
    ]


class InsertResolver:
    """Makes an Insert of a declaration.

    Args:
        lookup: relation of a table or view by name.
        find: table or view by name as declared, for a query that needs more than one row at a time.

    Attributes:
        problems: found so far.
        planned: the query, once `resolve` found that it needs more than one row at a time.
    """

    def __init__(self, declaration: InsertDeclaration, tables: Tables, lookup: Lookup, find: Find | None) -> None:
        self.find = find or tables.by_name.get
        self.declaration = declaration
        self.tables = tables
        self.lookup = lookup
        self.problems: list[Problem] = []
        self.planned: PlannedQuery | None = None
        self.shown: dict[str, str] = {}

    def error(self, message: str, location: SourceLocation | None = None, severity: str = "error") -> None:
        """Adds a problem of this statement."""
        place = location or self.declaration.location
        statement = "INSERT OVERWRITE" if self.declaration.overwrite else "INSERT INTO"
        self.problems.append(Problem(f"{statement} {self.declaration.target}: {message}", place, severity))

    def resolve(self) -> tuple[Insert | None, list[Problem]]:
        """The insert (None when there are errors), and the problems."""
        declaration = self.declaration
        for message, line in hint_warnings(declaration.query):
            self.error(message, SourceLocation(declaration.location.file, line), "warning")
        target = self.tables.by_name.get(declaration.target)
        relation: Relation | None = None
        planned: PlannedQuery | None = None
        try:
            relation, planned = self._read()
        except ToldFault:
            return None, self.problems
        except Fault as fault:
            self.error(fault.message, SourceLocation(declaration.location.file, fault.line))
        if declaration.target in self.tables.faulty:
            return None, self.problems
        if declaration.target in self.tables.elided:
            self.error("columns of the target were left out (...); write them")
            return None, self.problems
        if target is None:
            hint = nearest(declaration.target, self.tables.by_name)
            self.error(f"no CREATE TABLE declares the target{hint}")
        if target is None or relation is None:
            return None, self.problems
        given = self.match_columns(target, relation)
        if (
            planned is None
            and given is not None
            and not any(problem.severity == "error" for problem in self.problems)
            and self._needs_images(target, self.tables.by_name[relation.source], given)
        ):
            found = self._of_images(target)
            if found is not None:
                planned, given = found
        self.planned = planned
        if planned is not None:
            return self.insert_result(planned, target, given), self.problems
        source = self.tables.by_name[relation.source]
        if given is not None and not any(problem.severity == "error" for problem in self.problems):
            if self._check_key(target, source, given):
                for name, value in given.items():
                    if name in target.primary_key:
                        self.check_key_type(value, target.column(name), keyed=bool(source.primary_key))
                    else:
                        self.check_type(value, target.column(name))
            self._warn_varying(given, relation.predicate)
        if given is None or any(problem.severity == "error" for problem in self.problems):
            return None, self.problems
        predicate = relation.predicate
        written = [self.written(given.get(column.name), column) for column in written_columns(target)]
        fails = first_failure(*(value.fails for value in written))
        if fails and predicate is not None:  # rows that do not meet the predicate are not looked at
            fails = f"CASE WHEN {predicate.sql} THEN {fails} END"
        insert = Insert(
            source=relation.source,
            target=target.name,
            projections=tuple(value.sql for value in written),
            predicate=predicate.sql if predicate else None,
            failure=first_failure(predicate.fails if predicate else None, fails),
            sql=declaration.sql,
            location=declaration.location,
            overwrite=declaration.overwrite,
        )
        return insert, self.problems

    def _read(self) -> tuple[Relation, PlannedQuery | None]:
        """The query folded down to one table, or as a plan whose result is the one table."""
        if not self.declaration.tells_before:
            try:
                return read_query(self.declaration.query, self.lookup), None
            except NeedsState:
                pass
        return self._plan()

    def _plan(self) -> tuple[Relation, PlannedQuery]:
        planned = plan_query(self.declaration.query, self.find, lateness=self.declaration.lateness)
        return planned.relation(query_name(self.declaration.target)), planned

    def _of_images(self, target: Table) -> tuple[PlannedQuery, dict[str, Rendered]] | None:
        """The query with its own key, and what fills the target's columns; None where its rows are not told apart."""
        relation, planned = self._plan()
        given = self.match_columns(target, relation)
        assert given is not None, "they fit before"
        key = {name: given[name].column for name in target.primary_key if given[name].constant is None}
        shared = planned.shared_key(target.primary_key, key) is not None
        never = self.declaration.materializes is Materializes.NONE
        return None if shared and never else (planned, given)

    def _needs_images(self, target: Table, source: Table, given: dict[str, Rendered]) -> bool:
        """Return whether the key differs from that of the source: a delete then needs the before-image, since it has no
        other values.
        """
        materializes = self.declaration.materializes
        if not target.primary_key or self.declaration.overwrite:
            return False
        if not source.primary_key:
            # The platform takes it that one row at a time has a key of the target, unless the statement says otherwise.
            return materializes is Materializes.FORCE and not appends_alone(source)
        filled = [given.get(name) for name in target.primary_key]
        if any(value is not None and value.column is None and value.constant is None for value in filled):
            return True
        columns = {value.column for value in filled if value is not None}
        return materializes is not Materializes.NONE and columns != set(source.primary_key)

    def insert_result(self, planned: PlannedQuery, target: Table, given: dict[str, Rendered] | None) -> Insert | None:
        """An insert of the result of a query, which is kept up to date by itself."""
        if self.declaration.overwrite:
            self.error("a query that needs more than one row at a time is followed with INSERT INTO")
        if given is None or any(problem.severity == "error" for problem in self.problems):
            return None
        for name, value in given.items():
            if name in target.primary_key:
                self.check_key_type(value, target.column(name), keyed=False)
            else:
                self.check_type(value, target.column(name))
        key = {name: given[name].column for name in target.primary_key if given[name].constant is None}
        checked = self.check_rows(planned, target, key)
        if checked is None:
            return None
        planned, shared = checked
        used: dict[str, str] = {}
        for name, value in given.items():
            if value.column is not None:
                used.setdefault(value.column, name)
        named = {
            name: replace(value, sql=quote_name(used[value.column]), column=used[value.column])
            if value.column is not None
            else value
            for name, value in given.items()
        }
        columns = tuple(used[name] for name in key.values() if name is not None)
        query = planned.query(
            query_name(target.name),
            used=used,
            key=columns,
            keyed=bool(target.primary_key),
            statement=self.declaration.sql,
            shared=shared,
            state_ttl=self.declaration.state_ttl,
        )
        for part in keeping(query):
            self.error(f"{part}: their state stays, whatever '{STATE_TTL}' and the hint say", severity="warning")
        if can_fail(query):
            self.error(
                "a computed column that can fail for a row is not kept up to date: declare it with TRY_CAST, or with"
                " NULLIF(y, 0) below /"
            )
            return None
        if crosses(query.plan):
            self.error(
                "a join without an equality of columns: each row meets all rows of the other side, in one task, and a"
                " batch reads both sides whole",
                severity="warning",
            )
        for function in varying(query):
            self.error(
                f"the query depends on {function}, which is evaluated once per row, when the batch is computed",
                severity="warning",
            )
        written = [self.written(named.get(column.name), column) for column in written_columns(target)]
        return Insert(
            source=query.name,
            target=target.name,
            projections=tuple(value.sql for value in written),
            predicate=None,
            failure=first_failure(*(value.fails for value in written)),
            sql=self.declaration.sql,
            location=self.declaration.location,
            query=query,
        )

    def check_rows(
        self, planned: PlannedQuery, target: Table, key: dict[str, str | None]
    ) -> tuple[PlannedQuery, bool] | None:
        """The query as its target takes it, and whether rows of it may share a key of that, which is reported.

        Args:
            key: columns of the target's key to columns of the result; constants left out.

        Returns:
            None where there are errors.
        """
        if not target.primary_key:
            try:
                final = planned.without_key(self.find, lateness=self.declaration.lateness)
            except Fault as fault:
                self.error(fault.message)
                return None
            if final.final_windows > planned.final_windows:
                self.error(_FINAL, severity="warning")
            return final, False
        shared = planned.shared_key(target.primary_key, key)
        if shared is not None and self.declaration.materializes is Materializes.NONE:
            self.error(shared.refusal)
            return None
        if shared is not None:
            self.error(shared.warning, severity="warning")
        return planned, shared is not None

    def match_columns(self, target: Table, relation: Relation) -> dict[str, Rendered] | None:
        """Target column to expression; None when the shapes do not fit."""
        self.shown = {value.column: name for name, value in relation.columns if value.column is not None}
        declared = {column.name: column for column in declared_order(target)}
        constants = self._partition_constants(target, declared)
        names = list(self.declaration.columns)
        for name in names:
            if name not in declared:
                self.error(f"the target has no column '{name}' to write{nearest(name, declared)}")
            elif names.count(name) > 1 or name in constants:
                self.error(f"column '{name}' is given twice")
        if not names:
            names = [name for name in declared if name not in constants]
        if any(problem.severity == "error" for problem in self.problems):
            return None
        if len(names) != len(relation.columns):
            read = ", ".join(name for name, _ in relation.columns)
            self.error(
                f"the query gives {len(relation.columns)} columns ({read}) for {len(names)} of the target"
                f" ({', '.join(names)})"
            )
            return None
        given = constants | {name: value for name, (_, value) in zip(names, relation.columns, strict=True)}
        for name, column in declared.items():
            if name in given:
                continue
            if name in target.primary_key:
                self.error(f"primary key column '{name}' is not written; add it to the column list")
            elif column.type is not None and not column.type.nullable:
                self.error(f"column '{name}' is NOT NULL and not written; add it to the column list")
        return given

    def _partition_constants(self, target: Table, declared: dict[str, Column]) -> dict[str, Rendered]:
        constants: dict[str, Rendered] = {}
        for name, tokens in self.declaration.partition.items():
            if name not in declared or name not in target.partitioned_by:
                known = ", ".join(target.partitioned_by) or "none"
                self.error(f"PARTITION names '{name}', which is not a partition column (they are: {known})")
                continue
            try:
                value = render(parse_query(tokens, "expression"), Scope({}), tokens[0].line)
            except Fault as fault:
                self.error(fault.message, SourceLocation(self.declaration.location.file, fault.line))
                continue
            column = declared[name]
            if value.constant is not None and column.type is not None:
                # Flink casts partition constants: PARTITION (dd = '1') fits a BIGINT column, dd = 1 a STRING.
                value = cast(value, column.type)
            constants[name] = value
        return constants

    def check_type(self, value: Rendered, column: Column) -> None:
        """Refuses a value that Flink does not convert for a column by itself."""
        assert column.type is not None
        if value.type is None or can_write(value.type, column.type):
            return
        self._refuse_type(
            value, column, f"write CAST({self.shown.get(value.column or '', '...')} AS {_bare(column.type)})"
        )

    def check_key_type(self, value: Rendered, column: Column, *, keyed: bool) -> None:
        """A key that loses digits would make one row of two, and a delete of one would take both."""
        assert column.type is not None
        if value.type is None or value.constant is not None or keeps_apart(value.type, column.type):
            if value.constant is not None:
                self.check_type(value, column)
            return
        shown = self.shown.get(value.column or "", "...")
        cast_remedy = f"write CAST({shown} AS {_bare(column.type)}) if one row per such value is meant"
        remedy = f"declare it {_bare(value.type)} too" if keyed else cast_remedy
        because = ", where different keys could become one" if can_write(value.type, column.type) else ""
        self._refuse_type(value, column, remedy, because)

    def _refuse_type(self, value: Rendered, column: Column, remedy: str, because: str = "") -> None:
        assert value.type is not None and column.type is not None
        what = f"column '{self.shown.get(value.column, value.column)}'" if value.column else "the expression"
        shown = "a text" if value.constant is not None and value.root in STRINGS else _bare(value.type)
        self.error(f"{what} is {shown}, column '{column.name}' is {_bare(column.type)}{because}; {remedy}")

    def _check_key(self, target: Table, source: Table, given: dict[str, Rendered]) -> bool:
        """Return whether the target's key is the source's: a delete carries nothing else."""
        if not target.primary_key or not source.primary_key:
            return True
        found: list[str] = []
        for name in target.primary_key:
            value = given[name]
            if value.column is None or value.column not in source.primary_key:
                what = f"column '{value.column}'" if value.column else "an expression"
                key = ", ".join(source.primary_key)
                self.error(
                    f"primary key column '{name}' is filled from {what}; it must be a primary key column of"
                    f" '{source.name}' ({key}) as it is, because deletes carry nothing else"
                )
                return False
            found.append(value.column)
        missing = [name for name in source.primary_key if name not in found]
        if missing:
            self.error(
                f"the primary key of '{source.name}' has the columns {', '.join(source.primary_key)}, but the key of"
                f" the target lacks {', '.join(missing)}: rows with different keys would overwrite each other"
            )
            return False
        return True

    def _warn_varying(self, given: dict[str, Rendered], predicate: Rendered | None) -> None:
        values = [*given.items(), *([("WHERE", predicate)] if predicate is not None else [])]
        for name, value in values:
            if value.varies:
                where = "WHERE" if name == "WHERE" else f"column '{name}'"
                self.error(
                    f"{where} depends on {value.varies}, which differs each time a batch is written or verified",
                    severity="warning",
                )

    def written(self, value: Rendered | None, column: Column) -> Rendered:
        """An expression as its column takes it; NULL for a column that is not written."""
        if value is None:
            return Rendered("NULL", simple=True)
        assert column.type is not None
        return cast(value, column.type, implicit=True)


def _bare(logical: LogicalType) -> str:
    return str(logical).removesuffix(" NOT NULL")
