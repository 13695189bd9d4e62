"""A plan to stages: what tasks do between two exchanges.

A stage reads a changelog, or the exchanges of earlier stages bucket by bucket; carries out one operator; takes the
row-by-row steps that follow; and hands the rows to the next stage's exchange, or writes them as the query's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from upsert_platform.changelog.rows import ORDER
from upsert_platform.core.plan import (
    Aggregate,
    Arrivals,
    Expand,
    Expression,
    Field,
    Filter,
    Finals,
    Join,
    Lookup,
    Materialize,
    Merge,
    Node,
    Over,
    Project,
    Scan,
    Session,
    Temporal,
    TopN,
    Union,
    Unnest,
    Window,
    column,
    scans,
)
from upsert_platform.engine.aggregate import Groups, Multiset, multiset_of
from upsert_platform.engine.arrivals import Arrived
from upsert_platform.engine.finals import FinalRows
from upsert_platform.engine.join import Matches
from upsert_platform.engine.lookup import Found
from upsert_platform.engine.materialize import LastRows
from upsert_platform.engine.merge import BRANCH, BRANCH_TYPE, LastChanged
from upsert_platform.engine.over import Overs
from upsert_platform.engine.partitions import Partitions
from upsert_platform.engine.results import Result
from upsert_platform.engine.sessions import Sessions
from upsert_platform.engine.sources import PUT, Upserts
from upsert_platform.engine.state import NEVER, StateSchema
from upsert_platform.engine.steps import (
    ExpandStep,
    FilterStep,
    ProjectStep,
    Step,
    UnnestStep,
    WindowStep,
    is_native,
    steps_at,
)
from upsert_platform.engine.temporal import AsOf
from upsert_platform.engine.topn import FirstRows
from upsert_platform.engine.window_ends import End, end_of_state, ends_of_join, is_of_window

Operator = (
    Upserts
    | Groups
    | Multiset
    | FirstRows
    | Matches
    | AsOf
    | Found
    | LastChanged
    | Arrived
    | LastRows
    | Partitions
    | FinalRows
)


@dataclass(frozen=True, slots=True)
class Feed:
    """The exchange after a stage.

    Attributes:
        operator: that takes them; it reduces them beforehand. None for rows that only move.
        prepared: the rows are partial results already.
        group: columns that choose the bucket; with `spread` those of `rest` do too.
    """

    exchange: int
    operator: Operator | None = None
    prepared: bool = False
    group: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of tasks.

    Attributes:
        fields: columns of its rows, before the steps.
        scan: the changelog that is read; None for a stage that reads exchanges.
        reads: exchanges, one per input of the operator.
        operator: None where rows are only passed on.
        bucketed: each bucket is read by itself; otherwise tasks take files as they come.
        steps: taken over the operator's rows.
        result: what is written, in the last stage.
        first_row: the first batch makes a row of nothing (a GROUP BY without columns).
        ordered: rows that are only added carry what orders them, since the last one of each key counts.
        watched: names of ends of windows that close, each with the column of the scan that tells their time.
        window_ends: per name of a state the column with the end of such a window, by which rows leave that state.
        closed: per name of a state the place of that column, and when windows end that are closed: their rows may leave
            the state. Microseconds since 1970.
        over: sessions that end then, or before, are closed, in microseconds since 1970; None while none is.
        final: rows of windows that end then, or before, are given out by an operator of final rows; None: of no others
            than before.
        ttls: per name of a state after how many milliseconds without a change rows are let go of; none in a query whose
            state stays.
        now: when the batch was planned, in milliseconds since 1970; see `at`.
    """

    number: int
    fields: tuple[Field, ...]
    scan: Scan | None
    reads: tuple[int, ...]
    operator: Operator | None
    bucketed: bool
    steps: tuple[Step, ...]
    feeds: tuple[Feed, ...]
    result: Result | None
    ordered: bool = False
    watched: tuple[tuple[str, str], ...] = ()
    window_ends: tuple[tuple[str, End], ...] = ()
    closed: tuple[tuple[str, tuple[int, int]], ...] = ()
    over: int | None = None
    final: int | None = None
    ttls: tuple[tuple[str, int], ...] = ()
    now: int = 0

    @property
    def needs_spark(self) -> bool:
        """Return whether a step has no native form."""
        return not all(is_native(step) for step in self.steps)

    def at(self, now: int) -> Stage:
        """Return the stage in a batch that was planned then: functions of the clock give that time."""
        return replace(self, steps=steps_at(self.steps, now), now=now)

    @property
    def first_row(self) -> bool:
        return isinstance(self.operator, Groups) and not self.operator.node.group

    @property
    def final_of(self) -> tuple[str, ...]:
        """Names of the ends of windows whose rows its operator gives once they are closed."""
        return self.operator.node.windows if isinstance(self.operator, FinalRows) else ()

    @property
    def session(self) -> Session | None:
        """The session windows of its operator, if they close."""
        node = self.operator.node if isinstance(self.operator, Sessions) else None
        return node if node is not None and node.closing is not None else None

    @property
    def looks_up(self) -> str | None:
        """Name of the table that its operator finds rows in."""
        return self.operator.node.table if isinstance(self.operator, Found) else None

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """The states of the operator."""
        return self.operator.states if self.operator is not None else ()


@dataclass
class _Draft:
    """A stage while later ones are found."""

    number: int
    fields: tuple[Field, ...]
    scan: Scan | None = None
    reads: tuple[int, ...] = ()
    operator: Operator | None = None
    bucketed: bool = False
    steps: list[Step] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    result: Result | None = None
    placed_by: tuple[str, ...] | None = None
    """Columns that all rows of a bucket's groups share, followed through the steps; None when they are lost."""
    base: tuple[Field, ...] = ()
    """Columns before the steps."""
    upsert: bool = False
    """Steps are of an upsert source that has no index yet."""
    ordered: bool = False
    watched: list[tuple[str, str]] = field(default_factory=list)
    window_ends: tuple[End | None, ...] = ()
    """Of the operator's states, in their order; likewise `ttls`."""
    ttls: tuple[int, ...] = ()

    def stage(self) -> Stage:
        return Stage(
            self.number, self.base, self.scan, self.reads, self.operator, self.bucketed,
            tuple(self.steps), tuple(self.feeds), self.result, self.ordered, tuple(self.watched), self._window_ends(),
            ttls=self._ttls(),
        )  # fmt: skip

    def _window_ends(self) -> tuple[tuple[str, End], ...]:
        states = self.operator.states if self.operator is not None and self.window_ends else ()
        found = zip(states, self.window_ends, strict=True) if states else ()
        return tuple((state.name, end) for state, end in found if end is not None)

    def _ttls(self) -> tuple[tuple[str, int], ...]:
        states = self.operator.states if self.operator is not None and self.ttls else ()
        return tuple((state.name, ttl) for state, ttl in zip(states, self.ttls, strict=True)) if states else ()


def plan_stages(plan: Node, result: Result, *, mark: str = "", ttl: int | None = None) -> tuple[Stage, ...]:
    """The stages of a query, in the order in which they run.

    Args:
        mark: part of the names of its states, so that those of two plans are told apart.
        ttl: after how many milliseconds without a change state is let go of; None for never, where no operator has a
            time of its own.
    """
    return _Compiler(mark, ttl, forgets=result.forgets).compile(plan, result)


class _Compiler:
    def __init__(self, mark: str, ttl: int | None, *, forgets: bool) -> None:
        self.mark = mark
        self.ttl = ttl
        self.forgets = forgets
        self.drafts: list[_Draft] = []
        self.exchanges = 0
        self.states = 0

    def compile(self, plan: Node, result: Result) -> tuple[Stage, ...]:
        ends = [self._sealed(draft) for draft in self._build(plan)]
        ready = [self._native(draft) for draft in ends]
        together = len(ready) == 1 and ready[0].placed_by is not None and set(ready[0].placed_by) <= set(result.key)
        if result.key and not together:
            exchange = self._exchange()
            for draft in ready:
                draft.feeds.append(Feed(exchange, group=result.key))
            ready = [self._draft(plan.fields, reads=(exchange,), bucketed=True)]
        for draft in ready:
            draft.result = result
        return tuple(draft.stage() for draft in self.drafts)

    def _draft(self, fields: Sequence[Field], **settings: object) -> _Draft:
        draft = _Draft(len(self.drafts), tuple(fields), base=tuple(fields), **settings)  # type: ignore[arg-type]
        self.drafts.append(draft)
        return draft

    def _exchange(self) -> int:
        self.exchanges += 1
        return self.exchanges

    def _ttls(self, node: Node | None, *own: int | None, by: Sequence[str] = ()) -> tuple[int, ...]:
        """The times of an operator's states.

        Args:
            node: input of the operator, and `by` columns by which it takes rows: those of windows stay.
            own: what hints say of each state, None for nothing.
        """
        if not self.forgets:
            return ()
        if node is not None and is_of_window(node, by):
            return (NEVER,) * len(own)
        return tuple((self.ttl if ttl is None else ttl) or NEVER for ttl in own)

    def _state(self) -> str:
        self.states += 1
        return f"_s{self.states}{self.mark}"

    def _build(self, node: Node) -> list[_Draft]:
        match node:
            case Scan():
                draft = self._draft(node.fields, scan=node, upsert=bool(node.key) and not node.signed)
                draft.placed_by = None
                return [draft]
            case Project():
                return [self._projected(draft, node.columns) for draft in self._build(node.input)]
            case Filter():
                return [self._filtered(draft, node.condition) for draft in self._build(node.input)]
            case Window():
                drafts = self._build(node.input)
                self._watch(node)
                return [self._windowed(self._sealed(draft), node) for draft in drafts]
            case Unnest():
                return [self._unnested(self._sealed(draft), node) for draft in self._build(node.input)]
            case Expand():
                return [self._expanded(self._sealed(draft), node) for draft in self._build(node.input)]
            case Aggregate():
                return [self._aggregate(node)]
            case TopN():
                ttls = self._ttls(node.input, None, by=node.partition)
                return [self._one_input(node.input, FirstRows(node, self._state()), node.partition, node.fields, ttls)]
            case Finals():
                return [self._final(node)]
            case Arrivals():
                ttls = self._ttls(node.input, node.ttl, by=node.key)
                return [self._one_input(node.input, Arrived(node, self._state()), node.key, node.fields, ttls)]
            case Join():
                return [self._join(node)]
            case Temporal():
                return [self._as_of(node)]
            case Lookup():
                on = tuple(name for name, _ in node.on)
                stay = self._ttls(None, *((0,) if not node.input.appends else ()))
                return [self._one_input(node.input, Found(node, self._state()), on, node.fields, stay)]
            case Session():
                stay = self._ttls(None, 0)
                draft = self._one_input(node.input, Sessions(node, self._state()), node.partition, node.fields, stay)
                self._watch(node)
                return [draft]
            case Over():
                ttls = self._ttls(node.input, None, by=node.partition)
                return [self._one_input(node.input, Overs(node, self._state()), node.partition, node.fields, ttls)]
            case Materialize():
                ttls = self._ttls(None, None)
                return [self._one_input(node.input, LastRows(node, self._state()), node.key, node.fields, ttls)]
            case Merge():
                return [self._merge(node)]
            case Union():
                return [draft for branch in node.branches for draft in self._branch(branch, node.fields)]

    def _branch(self, branch: Node, fields: tuple[Field, ...]) -> list[_Draft]:
        """A branch of a union, its columns named as the first branch names them."""
        columns = tuple(
            (target.name, replace(column(own), type=target.type))
            for own, target in zip(branch.fields, fields, strict=True)
        )
        # The index of an upsert source stands before the union: keys of two branches are not one key.
        return [self._projected(self._sealed(draft), columns) for draft in self._build(branch)]

    def _merge(self, node: Merge) -> _Draft:
        operator = LastChanged(node, self._state())
        exchange = self._exchange()
        same = tuple((item.name, column(item)) for item in node.fields)
        for number, branch in enumerate(node.branches):
            tag = (BRANCH, Expression(str(number), BRANCH_TYPE, ("literal", number, BRANCH_TYPE)))
            for draft in self._branch(branch, node.fields):
                last = self._last_rows(draft, node.key) if branch.appends else draft
                ready = self._native(self._projected(last, (*same, tag)))
                ready.feeds.append(Feed(exchange, operator, group=node.key))
        stay = self._ttls(None, 0)
        return self._draft(
            node.fields, reads=(exchange,), operator=operator, bucketed=True, placed_by=node.key, ttls=stay
        )

    def _last_rows(self, draft: _Draft, key: tuple[str, ...]) -> _Draft:
        """Rows that are only added as upserts of a key: each takes the place of the one before it."""
        assert draft.scan is not None, "the rows of a branch come from one changelog"
        draft.ordered = True
        draft.steps = [
            replace(step, kept=(PUT, *ORDER)) if isinstance(step, ProjectStep) else step for step in draft.steps
        ]
        operator = Upserts(key, draft.fields, self._state())
        exchange = self._exchange()
        draft.feeds.append(Feed(exchange, operator, group=key))
        ttls = self._ttls(None, None)
        return self._draft(draft.fields, reads=(exchange,), operator=operator, bucketed=True, placed_by=key, ttls=ttls)

    def _projected(self, draft: _Draft, columns: tuple[tuple[str, Expression], ...]) -> _Draft:
        draft.steps.append(ProjectStep(columns))
        draft.fields = tuple(Field(name, expression.type) for name, expression in columns)
        if draft.placed_by is not None:
            shown = {expression.column: name for name, expression in columns if expression.column is not None}
            names = [shown.get(name) for name in draft.placed_by]
            draft.placed_by = tuple(name for name in names if name) if all(names) else None
        return draft

    def _filtered(self, draft: _Draft, condition: Expression) -> _Draft:
        draft.steps.append(FilterStep(condition, PUT if draft.upsert else None))
        return draft

    def _windowed(self, draft: _Draft, node: Window) -> _Draft:
        draft.steps.append(WindowStep(node))
        draft.fields = node.fields
        return draft

    def _unnested(self, draft: _Draft, node: Unnest) -> _Draft:
        draft.steps.append(UnnestStep(node))
        draft.fields = node.fields
        return draft

    def _watch(self, node: Window | Session) -> None:
        """Has the table read that tells the time of a window that closes."""
        if node.closing is not None:
            (scan,) = [item for item in scans(node.input) if item.table == node.closing.table]
            (draft,) = [item for item in self.drafts if item.scan is scan]
            draft.watched.append((node.names[1], node.closing.column))

    def _expanded(self, draft: _Draft, node: Expand) -> _Draft:
        draft.steps.append(ExpandStep(node))
        draft.fields, draft.placed_by = node.fields, None
        return draft

    def _sealed(self, draft: _Draft) -> _Draft:
        """The source with its contribution index behind it, if it needs one."""
        if not draft.upsert:
            return draft
        assert draft.scan is not None
        key, copies = _kept_key(draft)
        if copies:
            draft.steps.insert(0, ProjectStep((*_same(draft.scan.fields), *copies)))
        extra = tuple(name for name, _ in copies)
        draft.steps = [
            replace(step, kept=(*(() if at == 0 and copies else extra), PUT, *ORDER))
            if isinstance(step, ProjectStep)
            else step
            for at, step in enumerate(draft.steps)
        ]
        columns = (*(Field(name, expression.type) for name, expression in copies), *draft.fields)
        operator = Upserts(key, columns, self._state())
        exchange = self._exchange()
        draft.upsert = False
        draft.feeds.append(Feed(exchange, operator, group=key))
        ttls = self._ttls(None, None)
        sealed = self._draft(columns, reads=(exchange,), operator=operator, bucketed=True, placed_by=key, ttls=ttls)
        if copies:
            self._projected(sealed, _same(draft.fields))
        return sealed

    def _native(self, draft: _Draft) -> _Draft:
        """A stage whose steps need Spark passes its rows on first, unless it reads files as they come."""
        if not draft.bucketed or all(is_native(step) for step in draft.steps):
            return draft
        exchange = self._exchange()
        draft.feeds.append(Feed(exchange))
        steps, draft.steps = draft.steps, []
        passing = self._draft(draft.base, reads=(exchange,), steps=steps)
        passing.fields = draft.fields
        return passing

    def _inputs(self, node: Node) -> list[_Draft]:
        return [self._native(self._sealed(draft)) for draft in self._build(node)]

    def _aggregate(self, node: Aggregate) -> _Draft:
        groups = Groups(node, self._state(), self.forgets)
        ttls = self._ttls(node.input, node.ttl, by=node.group)
        ends = (end_of_state(node.input, node.group, node.group),)
        exchange = self._exchange()
        inputs = self._inputs(node.input)
        for draft in inputs:
            draft.feeds.append(Feed(exchange, groups, group=node.group))
        sets = dict.fromkeys(found for item in groups.plan.items if (found := multiset_of(item)) is not None)
        for argument, condition in sets:
            values = Multiset(node, argument, condition, self._state(), self.forgets)
            spread = self._exchange()
            names = tuple(values.group_names)
            for draft in inputs:
                draft.feeds.append(Feed(spread, values, group=names, rest=("value",), spread=values.spread))
            stage = self._draft((), reads=(spread,), operator=values, bucketed=True, window_ends=ends, ttls=ttls)
            stage.feeds.append(Feed(exchange, groups, prepared=True, group=node.group))
        settings = {"operator": groups, "bucketed": True, "placed_by": node.group, "window_ends": ends, "ttls": ttls}
        return self._draft(node.fields, reads=(exchange,), **settings)

    def _final(self, node: Finals) -> _Draft:
        """The rows of windows once they are closed, all that are equal in the shortest key of them together."""
        by = min((sorted(key) for key in node.keys), key=len, default=[item.name for item in node.fields])
        stay = self._ttls(None, 0)
        return self._one_input(node.input, FinalRows(node, self._state()), tuple(by), node.fields, stay)

    def _one_input(
        self, given: Node, operator: Operator, by: tuple[str, ...], fields: Sequence[Field], ttls: tuple[int, ...]
    ) -> _Draft:
        """An operator over one input, whose rows it takes by some columns."""
        exchange = self._exchange()
        for draft in self._inputs(given):
            draft.feeds.append(Feed(exchange, operator, group=by))
        ends: tuple[End | None, ...] = ()
        if isinstance(operator, (FirstRows, Arrived, Overs)):
            (state,) = operator.states
            ends = (end_of_state(given, by, [name for name, _ in state.keys]),)
        settings = {"operator": operator, "bucketed": True, "placed_by": by, "window_ends": ends, "ttls": ttls}
        return self._draft(fields, reads=(exchange,), **settings)

    def _join(self, node: Join) -> _Draft:
        operator = Matches(node, self._state(), self._state())
        sides = ((node.left, node.left_on), (node.right, node.right_on))
        placed = {"right": node.right_on, "full": None}.get(node.kind, node.left_on)
        ttls = self._ttls(node.left, *node.ttls, by=node.left_on)
        draft = self._two_inputs(operator, sides, node.fields, placed, ttls)
        draft.window_ends = ends_of_join(node)
        return draft

    def _as_of(self, node: Temporal) -> _Draft:
        operator = AsOf(node, self._state(), self._state())
        sides = ((node.input, node.on), (node.versions, node.key))
        return self._two_inputs(operator, sides, node.fields, node.on, self._ttls(None, 0, 0))

    def _two_inputs(
        self,
        operator: Matches | AsOf,
        sides: Sequence[tuple[Node, tuple[str, ...]]],
        fields: Sequence[Field],
        placed: tuple[str, ...] | None,
        ttls: tuple[int, ...],
    ) -> _Draft:
        """An operator over two inputs, each by some columns."""
        exchanges = (self._exchange(), self._exchange())
        for exchange, (side, on) in zip(exchanges, sides, strict=True):
            for draft in self._inputs(side):
                draft.feeds.append(Feed(exchange, operator, group=on))
        return self._draft(fields, reads=exchanges, operator=operator, bucketed=True, placed_by=placed, ttls=ttls)


def _same(fields: Sequence[Field]) -> tuple[tuple[str, Expression], ...]:
    """Columns as they are."""
    return tuple((item.name, column(item)) for item in fields)


def _kept_key(draft: _Draft) -> tuple[tuple[str, ...], tuple[tuple[str, Expression], ...]]:
    """Names of an upsert source's key after its steps, and copies of the key's columns if a step loses one."""
    assert draft.scan is not None
    names = list(draft.scan.key)
    for step in draft.steps:
        if isinstance(step, ProjectStep):
            shown = {expression.column: name for name, expression in step.columns if expression.column is not None}
            if not all(name in shown for name in names):
                fields = {item.name: item for item in draft.scan.fields}
                copies = tuple((f"_k{at}", column(fields[name])) for at, name in enumerate(draft.scan.key))
                return tuple(name for name, _ in copies), copies
            names = [shown[name] for name in names]
    return tuple(names), ()
