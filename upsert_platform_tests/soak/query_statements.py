"""Random statements for kept-up queries: one operator over tables, or one over what others give.

Every statement has two texts: in Flink's words, and in DuckDB's, which judges. They differ where DuckDB has other words
(windows) or another rule (averages of whole numbers).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

INT, BIGINT, TEXT, TIME = "INT", "BIGINT", "STRING", "TIMESTAMP"
NUMBERS: Final = (INT, BIGINT)


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Relation:
    """A table, or a statement over some.

    Attributes:
        flink: what stands in FROM: a name, or a statement in parentheses. `duckdb` is the same for the judge.
        classes: of its operators, the outermost first.
    """

    flink: str
    duckdb: str
    columns: tuple[Column, ...]
    classes: tuple[str, ...] = ()

    def of(self, *types: str) -> list[Column]:
        """Columns of some types."""
        return [item for item in self.columns if item.type in types]


@dataclass(frozen=True)
class Statement:
    """What is kept up to date, and what the judge computes."""

    flink: str
    duckdb: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...] = ()


TABLES: Final = tuple(
    Relation(name, name, tuple(Column(*item) for item in columns))
    for name, columns in (
        ("users", (("id", INT), ("region", TEXT), ("age", INT))),
        ("orders", (("oid", BIGINT), ("uid", INT), ("amount", BIGINT), ("kind", TEXT), ("ts", TIME))),
        ("views", (("uid", INT), ("page", TEXT), ("secs", BIGINT), ("ts", TIME))),
    )
)
_VALUES: Final = {INT: ("1", "2", "5"), BIGINT: ("0", "5", "40"), TEXT: ("'eu'", "'a'", "'p'", "''")}
_SETS: Final = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_EDGES: Final = (Column("window_start", TIME), Column("window_end", TIME))
_WINDOWS: Final = {
    "TUMBLE({table}, DESCRIPTOR(ts), INTERVAL '10' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 10 MINUTE, ts) AS window_start,"
        " time_bucket(INTERVAL 10 MINUTE, ts) + INTERVAL 10 MINUTE AS window_end FROM {table} WHERE ts IS NOT NULL"
    ),
    "HOP({table}, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 5 MINUTE, ts) - n * INTERVAL 5 MINUTE AS window_start,"
        " time_bucket(INTERVAL 5 MINUTE, ts) - n * INTERVAL 5 MINUTE + INTERVAL 15 MINUTE AS window_end"
        " FROM {table}, range(3) r(n) WHERE ts IS NOT NULL"
    ),
    "CUMULATE({table}, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '20' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 20 MINUTE, ts) AS window_start,"
        " time_bucket(INTERVAL 20 MINUTE, ts) + (n + 1) * INTERVAL 5 MINUTE AS window_end"
        " FROM {table}, range(4) r(n) WHERE ts < time_bucket(INTERVAL 20 MINUTE, ts) + (n + 1) * INTERVAL 5 MINUTE"
    ),
}
_SESSION: Final = (
    "SELECT * EXCLUDE (fresh, number), MIN(ts) OVER ({by}number) AS window_start, MAX(ts) OVER ({by}number) + INTERVAL"
    " 5 MINUTE AS window_end FROM (SELECT *, SUM(fresh) OVER (PARTITION BY {by}1 ORDER BY ts) AS number FROM (SELECT *,"
    " CASE WHEN ts - LAG(ts) OVER (PARTITION BY {by}1 ORDER BY ts) <= INTERVAL 5 MINUTE THEN 0 ELSE 1 END AS fresh FROM"
    " {table} WHERE ts IS NOT NULL))"
).replace("OVER ({by}number)", "OVER (PARTITION BY {by}number)")
"""Rows of one time are one session, whichever of them comes first."""
_UNNESTED: Final = (
    # Flink's FROM, the judge's, columns
    ("CROSS JOIN UNNEST(b.tags) AS t (x)", "CROSS JOIN UNNEST(b.tags) AS t(x)", (("x", TEXT),)),
    ("CROSS JOIN UNNEST(b.tags) WITH ORDINALITY AS t (x, y)", "CROSS JOIN UNNEST(b.tags) WITH ORDINALITY AS t(x, y)",
     (("x", TEXT), ("y", INT))),
    ("LEFT JOIN UNNEST(b.tags) WITH ORDINALITY AS t (x, y) ON TRUE",
     "LEFT JOIN UNNEST(b.tags) WITH ORDINALITY AS t(x, y) ON TRUE", (("x", TEXT), ("y", INT))),
    ("CROSS JOIN UNNEST(b.sizes) AS t (x, y)",
     "CROSS JOIN LATERAL (SELECT e.key AS x, e.value AS y FROM (SELECT UNNEST(map_entries(b.sizes)) AS e)) AS t",
     (("x", TEXT), ("y", INT))),
    ("CROSS JOIN UNNEST(b.parts) AS t (x, y)",
     "CROSS JOIN LATERAL (SELECT e.name AS x, e.n AS y FROM (SELECT UNNEST(b.parts) AS e)) AS t",
     (("x", TEXT), ("y", INT))),
    ("CROSS JOIN UNNEST(b.bag) AS t (x)",
     "CROSS JOIN LATERAL (SELECT e.key AS x, UNNEST(range(e.value)) FROM (SELECT UNNEST(map_entries(b.bag)) AS e)) AS"
     " t", (("x", TEXT),)),
)  # fmt: skip


class Maker:
    """Makes random statements."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0
        self.unary: dict[str, Callable[[Relation], Relation | None]] = {
            "filter": self.filtered, "groups": self.grouped, "groupings": self.groupings,
            "everything": self.totalled, "distinct": self.distinct, "first rows": self.first_rows,
            "first and last values": self.arrived, "frames": self.framed, "frames of time": self.framed_by_time,
            "ranks": self.ranked, "order of arrival": self.in_order,
        }  # fmt: skip
        self.binary: dict[str, Callable[[Relation, Relation], Relation | None]] = {
            **{f"{kind.lower()} join": self._joins(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")},
            "semi join": self._exists(""), "anti join": self._exists("NOT "),
            **{words.lower(): self._unites(words) for words in _SETS}, "not in": self.not_in, "value": self.valued,
            "join by an inequality": self.unequal, "interval join": self.timed,
        }  # fmt: skip

    def statement(self, depth: int) -> Statement:
        """A statement of so many operators, one over the other."""
        while True:
            made = self._made(depth)
            if made is not None and len(made.classes) >= depth:
                return Statement(made.flink[1:-1], made.duckdb[1:-1], made.classes, made.columns)

    def _made(self, depth: int) -> Relation | None:
        if not depth:
            return self.rng.choice(TABLES)
        if depth == 1 and self.rng.random() < 0.25:
            return self.rng.choice([self.windowed, self.sessions, self.unnested])()
        name = self.rng.choice([*self.unary, *self.binary])
        one = self._made(depth - 1)
        if one is None:
            return None
        if name in self.unary:
            made = self.unary[name](one)
        else:
            other = self._made(self.rng.randrange(depth))
            if other is None:
                return None
            made = self.binary[name](*self.rng.sample([one, other], 2))
        return Relation(made.flink, made.duckdb, made.columns, (name, *one.classes)) if made else None

    def _fresh(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def _select(
        self, shown: Sequence[tuple[str, str, str]], rest: str, sources: Sequence[Relation], *, words: str = ""
    ) -> Relation:
        """SELECT of (Flink's expression, DuckDB's, type), under new names.

        Args:
            rest: from FROM on, with {0} and {1} for the sources.
        """
        columns = tuple(Column(self._fresh(), kind) for _, _, kind in shown)
        texts = []
        for dialect in (0, 1):
            listed = ", ".join(f"{item[dialect]} AS {column.name}" for item, column in zip(shown, columns, strict=True))
            inner = [(source.flink, source.duckdb)[dialect] for source in sources]
            texts.append(f"(SELECT {words}{listed} {rest.format(*inner)})")
        return Relation(texts[0], texts[1], columns)

    def _plain(self, columns: Sequence[Column], alias: str) -> list[tuple[str, str, str]]:
        return [(f"{alias}.{item.name}", f"{alias}.{item.name}", item.type) for item in columns]

    def _some(self, columns: Sequence[Column]) -> list[Column]:
        return self.rng.sample(list(columns), self.rng.randint(1, len(columns)))

    def _condition(self, relation: Relation, alias: str) -> str:
        found = []
        for item in self.rng.choices(relation.of(*_VALUES), k=self.rng.choice([1, 1, 2])):
            how = self.rng.choice(["= {}", "<> {}", "IS NOT NULL", "IS NULL"] + ["> {}", "<= {}"] * (item.type != TEXT))
            found.append(f"{alias}.{item.name} {how.format(self.rng.choice(_VALUES[item.type]))}")
        return self.rng.choice([" AND ", " OR "]).join(found)

    def filtered(self, one: Relation) -> Relation | None:
        if not one.of(*_VALUES):
            return None
        rest = f"FROM {{0}} AS t WHERE {self._condition(one, 't')}"
        return self._select(self._plain(self._some(one.columns), "t"), rest, [one])

    def _calls(self, one: Relation, alias: str) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        for _ in range(self.rng.randint(1, 3)):
            only = ""
            if one.of(*_VALUES) and self.rng.random() < 0.3:
                only = f" FILTER (WHERE {self._condition(one, alias)})"
            numbers = one.of(*NUMBERS)
            item = self.rng.choice(one.columns)
            name = self.rng.choice(
                ["*", "COUNT", "COUNT DISTINCT", "APPROX_COUNT_DISTINCT", "MIN", "MAX", "LISTAGG"]
                + ["SUM", "SUM DISTINCT", "AVG"] * 2
            )
            if name == "LISTAGG":
                if one.of(TEXT):
                    found.append(self._listed(f"{alias}.{self.rng.choice(one.of(TEXT)).name}", only))
                continue
            if name.partition(" ")[0] in ("SUM", "AVG"):
                if not numbers:
                    continue
                item = self.rng.choice(numbers)
            function, _, distinct = name.partition(" ")
            argument = f"{alias}.{item.name}"
            if name == "APPROX_COUNT_DISTINCT":
                # It may be off by a little: here it is exact, which is asked for.
                found.append((f"{name}({argument}){only}", f"COUNT(DISTINCT {argument}){only}", BIGINT))
                continue
            if name == "*":
                text, kind = f"COUNT(*){only}", BIGINT
            else:
                kind = BIGINT if function == "COUNT" else item.type
                text = f"{function}({distinct}{' ' * bool(distinct)}{argument}){only}"
            judged = f"CAST(trunc(SUM({argument}){only} / COUNT({argument}){only}) AS BIGINT)"
            found.append((text, judged if function == "AVG" else text, kind))
        return found or [("COUNT(*)", "COUNT(*)", BIGINT)]

    def _listed(self, argument: str, only: str) -> tuple[str, str, str]:
        """Texts put together: ascending here, which DuckDB has to be told."""
        distinct = self.rng.choice(["", "DISTINCT "])
        flink = f"LISTAGG({distinct}{argument}, '+'){only}"
        return flink, f"STRING_AGG({distinct}{argument}, '+' ORDER BY {argument}){only}", TEXT

    def groupings(self, one: Relation) -> Relation | None:
        by = self._some(one.columns)[:2]
        names = ", ".join(f"t.{item.name}" for item in by)
        told = f"GROUPING_ID({names})"
        how = self.rng.choice([f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ())"])
        shown = [*self._plain(by, "t"), (told, told, BIGINT), *self._calls(one, "t")]
        # Of no rows a standard database makes a total, and Flink none.
        return self._select(shown, f"FROM {{0}} AS t GROUP BY {how} HAVING COUNT(*) > 0", [one])

    def grouped(self, one: Relation) -> Relation | None:
        by = self._some(one.columns)[:2]
        names = ", ".join(f"t.{item.name}" for item in by)
        having = self.rng.choice(["", "", " HAVING COUNT(*) > 1"])
        shown = [*self._plain(by, "t"), *self._calls(one, "t")]
        return self._select(shown, f"FROM {{0}} AS t GROUP BY {names}{having}", [one])

    def arrived(self, one: Relation) -> Relation | None:
        """First and last values, of rows that are only added: in the order in which they were."""
        if one is not TABLES[2]:
            return None
        by = self._some(one.columns)[:2]
        calls: list[tuple[str, str, str]] = []
        for _ in range(self.rng.randint(1, 2)):
            end, item = self.rng.choice(["first", "last"]), self.rng.choice(one.columns)
            condition = self._condition(one, "t") if self.rng.random() < 0.3 else ""
            flink = f"{end.upper()}_VALUE(t.{item.name})" + f" FILTER (WHERE {condition})" * bool(condition)
            there = f"t.{item.name} IS NOT NULL" + f" AND ({condition})" * bool(condition)
            calls.append((flink, f"{end}(t.{item.name} ORDER BY t._at) FILTER (WHERE {there})", item.type))
        if self.rng.random() < 0.5:
            calls += self._calls(one, "t")
        source = Relation(one.flink, f"{one.duckdb}_in_order", one.columns)
        names = ", ".join(f"t.{item.name}" for item in by)
        return self._select([*self._plain(by, "t"), *calls], f"FROM {{0}} AS t GROUP BY {names}", [source])

    def totalled(self, one: Relation) -> Relation | None:
        return self._select(self._calls(one, "t"), "FROM {0} AS t", [one])

    def distinct(self, one: Relation) -> Relation | None:
        return self._select(self._plain(self._some(one.columns), "t"), "FROM {0} AS t", [one], words="DISTINCT ")

    def first_rows(self, one: Relation) -> Relation | None:
        columns = list(one.columns)
        self.rng.shuffle(columns)
        by = columns.pop().name if len(columns) > 1 and self.rng.random() < 0.8 else None
        # All columns decide, so that only equal rows are in no order.
        order = ", ".join(
            f"t.{item.name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"
            for item in columns
        )
        over = f"ROW_NUMBER() OVER ({f'PARTITION BY t.{by} ' if by else ''}ORDER BY {order})"
        inner = self._select([*self._plain(one.columns, "t"), (over, over, BIGINT)], "FROM {0} AS t", [one])
        rank = inner.columns[-1]
        shown = inner.columns if self.rng.random() < 0.6 else inner.columns[:-1]
        rest = f"FROM {{0}} AS x WHERE {rank.name} <= {self.rng.randint(1, 4)}"
        return self._select(self._plain(shown, "x"), rest, [inner])

    def _over(self, one: Relation, *, whole: bool) -> str:
        """A window.

        Args:
            whole: all columns of the rows decide their order.
        """
        columns = list(one.columns)
        self.rng.shuffle(columns)
        by = columns.pop().name if len(columns) > 1 and self.rng.random() < 0.8 else None
        chosen = columns if whole else columns[: self.rng.randint(1, len(columns))]
        order = ", ".join(
            f"t.{item.name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"
            for item in chosen
        )
        return f"{f'PARTITION BY t.{by} ' if by else ''}ORDER BY {order}"

    def framed(self, one: Relation) -> Relation | None:
        """Functions of the rows before each row; calls share windows or have their own."""
        calls: list[tuple[str, str, str]] = []
        # Copies of a row are in no order, so that what tells them apart is looked at by one window and frame alone.
        how = self.rng.choice(["neighbours", "rows", "equals", "equals"])
        back = self.rng.choice(["UNBOUNDED", "0", "1", "3"])
        frame = f"ROWS BETWEEN {back} PRECEDING AND CURRENT ROW" if how == "rows" else ""
        window = self._over(one, whole=how != "equals")
        for _ in range(self.rng.randint(1, 3)):
            if how == "equals" and self.rng.random() < 0.3:
                window = self._over(one, whole=False)
            calls += self._framed_call(one, how, f"({window} {frame})", f"({window})")
        if not calls:
            return None
        return self._select([*self._plain(one.columns, "t"), *calls], "FROM {0} AS t", [one])

    def _framed_call(self, one: Relation, how: str, framed: str, plain: str) -> list[tuple[str, str, str]]:
        """At most one call.

        Args:
            framed: its window with a frame, `plain` the same without.
        """
        names = {
            "neighbours": ["LAG", "LEAD"], "rows": ["COUNT", "MIN", "MAX", "SUM", "AVG", "FIRST_VALUE", "LAST_VALUE"],
            "equals": ["COUNT", "MIN", "MAX", "SUM", "AVG", "RANK", "DENSE_RANK"],
        }  # fmt: skip
        name = self.rng.choice(names[how])
        numbers = one.of(*NUMBERS)
        if name in ("SUM", "AVG") and not numbers:
            return []
        item = self.rng.choice(numbers if name in ("SUM", "AVG") else one.columns)
        value = f"t.{item.name}"
        if name.endswith("RANK"):
            return [(f"{name}() OVER {plain}", f"{name}() OVER {plain}", BIGINT)]
        if name in ("LAG", "LEAD"):
            more = self.rng.choice(["", ", 2", ", 0", ", 1, " + _VALUES[item.type][0] if item.type in _VALUES else ""])
            return [(f"{name}({value}{more}) OVER {plain}", f"{name}({value}{more}) OVER {plain}", item.type)]
        if name == "AVG":
            judged = f"CAST(trunc(SUM({value}) OVER {framed} / COUNT({value}) OVER {framed}) AS BIGINT)"
            return [(f"AVG({value}) OVER {framed}", judged, item.type)]
        if name.endswith("VALUE"):
            return [(f"{name}({value}) OVER {framed}", f"{name}({value} IGNORE NULLS) OVER {framed}", item.type)]
        if name == "COUNT" and self.rng.random() < 0.5:
            value = "*"
        return [(f"{name}({value}) OVER {framed}",) * 2 + (BIGINT if name == "COUNT" else item.type,)]

    def framed_by_time(self, one: Relation) -> Relation | None:
        """Functions of the rows up to some minutes before each row."""
        if not one.of(TIME) or len(one.columns) < 2:
            return None
        time = self.rng.choice(one.of(TIME))
        by = self.rng.choice([item.name for item in one.columns if item is not time])
        partition = self.rng.choice([f"PARTITION BY t.{by} ", ""])
        minutes = self.rng.choice([0, 3, 10, 60])
        frame = f"RANGE BETWEEN INTERVAL '{minutes}' MINUTE PRECEDING AND CURRENT ROW"
        window = f"({partition}ORDER BY t.{time.name} NULLS {self.rng.choice(['FIRST', 'LAST'])} {frame})"
        calls: list[tuple[str, str, str]] = []
        for _ in range(self.rng.randint(1, 2)):
            name = self.rng.choice(["COUNT", "MIN", "MAX"])
            item = self.rng.choice(one.columns)
            text = f"{name}(t.{item.name}) OVER {window}"
            calls.append((text, text, BIGINT if name == "COUNT" else item.type))
        return self._select([*self._plain(one.columns, "t"), *calls], "FROM {0} AS t", [one])

    def ranked(self, one: Relation) -> Relation | None:
        """Rows up to a rank; equal ones share it."""
        window = self._over(one, whole=self.rng.random() < 0.3)
        call = f"{self.rng.choice(['RANK', 'DENSE_RANK'])}() OVER ({window})"
        inner = self._select([*self._plain(one.columns, "t"), (call, call, BIGINT)], "FROM {0} AS t", [one])
        rank = inner.columns[-1].name
        condition = self.rng.choice([f"x.{rank} <= {self.rng.randint(1, 4)}", f"x.{rank} = 2", f"x.{rank} > 1"])
        return self._select(self._plain(inner.columns, "x"), f"FROM {{0}} AS x WHERE {condition}", [inner])

    def in_order(self, one: Relation) -> Relation | None:
        """Processing time, of rows that are only added: the order in which they were."""
        if one is not TABLES[2]:
            return None
        source = Relation("(SELECT *, PROCTIME() AS p FROM views)", "views_in_order", one.columns)
        by = self.rng.choice(one.columns).name
        way = self.rng.choice(["ASC", "DESC"])
        if self.rng.random() < 0.5:
            texts = [f"ROW_NUMBER() OVER (PARTITION BY t.{by} ORDER BY t.{at} {way})" for at in ("p", "_at")]
            inner = self._select([*self._plain(one.columns, "t"), (*texts, BIGINT)], "FROM {0} AS t", [source])
            rest = f"FROM {{0}} AS x WHERE {inner.columns[-1].name} <= {self.rng.choice([1, 1, 3])}"
            return self._select(self._plain(inner.columns[:-1], "x"), rest, [inner])
        frame = f"ROWS BETWEEN {self.rng.choice(['UNBOUNDED', '1', '3'])} PRECEDING AND CURRENT ROW"
        calls: list[tuple[str, str, str]] = []
        for _ in range(self.rng.randint(1, 2)):
            name, item = self.rng.choice(["COUNT", "MAX", "LAG"]), self.rng.choice(one.columns)
            texts = [
                f"{name}(t.{item.name}) OVER (PARTITION BY t.{by} ORDER BY t.{at} {frame if name != 'LAG' else ''})"
                for at in ("p", "_at")
            ]
            calls.append((*texts, BIGINT if name == "COUNT" else item.type))
        return self._select([*self._plain(one.columns, "t"), *calls], "FROM {0} AS t", [source])

    def windowed(self) -> Relation:
        """Windows of a table, grouped or not."""
        table = self.rng.choice(TABLES[1:])
        flink, duckdb = self.rng.choice(list(_WINDOWS.items()))
        source = f"TABLE({flink.format(table=f'TABLE {table.flink}')})"
        return self._in_windows(Relation(source, f"({duckdb.format(table=table.duckdb)})", table.columns), [])

    def sessions(self) -> Relation:
        """Sessions of a table."""
        table = self.rng.choice(TABLES[1:])
        by = self.rng.choice([[], ["uid"], ["kind" if table is TABLES[1] else "page"]])
        shown = f"TABLE {table.flink}" + f" PARTITION BY {', '.join(by)}" * bool(by)
        flink = f"TABLE(SESSION({shown}, DESCRIPTOR(ts), INTERVAL '5' MINUTES))"
        duckdb = _SESSION.format(by="".join(f"{name}, " for name in by), table=table.duckdb)
        made = self._in_windows(Relation(flink, f"({duckdb})", table.columns), by)
        return Relation(made.flink, made.duckdb, made.columns, ("session",))

    def _in_windows(self, source: Relation, by: Sequence[str]) -> Relation:
        """Rows with their windows, or groups of windows.

        Args:
            by: columns that are grouped by in any case.
        """
        wide = (*_EDGES, *source.columns)
        if self.rng.random() < 0.4:
            chosen = [*_EDGES, *self._some(source.columns)]
            made = self._select(self._plain(chosen, "w"), "FROM {0} AS w", [source])
            return Relation(made.flink, made.duckdb, made.columns, ("window",))
        more = self.rng.choice([[], [], [self.rng.choice(source.columns).name]])
        names = dict.fromkeys(["window_start", "window_end", *by, *more])
        grouped = self._plain([item for item in wide if item.name in names], "w")
        calls = self._calls(source, "w")
        listed = ", ".join(f"w.{name}" for name in names)
        made = self._select([*grouped, *calls], f"FROM {{0}} AS w GROUP BY {listed}", [source])
        return Relation(made.flink, made.duckdb, made.columns, ("window",))

    def unnested(self) -> Relation:
        """The elements of collections."""
        flink, duckdb, elements = self.rng.choice(_UNNESTED)
        columns = [(f"t.{name}", f"t.{name}", kind) for name, kind in elements]
        made = self._select([("b.id", "b.id", INT), *columns], f"FROM boxes AS b {flink}", [])
        return Relation(made.flink, made.flink.replace(flink, duckdb), made.columns, ("unnest",))

    def _on(self, one: Relation, other: Relation, left: str = "a", right: str = "b") -> str | None:
        pairs = [(a, b) for a in one.columns for b in other.columns if a.type == b.type and a.type != TIME]
        if not pairs:
            return None
        a, b = self.rng.choice(pairs)
        return f"{left}.{a.name} = {right}.{b.name}"

    def _joins(self, kind: str) -> Callable[[Relation, Relation], Relation | None]:
        def join(one: Relation, other: Relation) -> Relation | None:
            on = self._on(one, other)
            if on is None:
                return None
            if one.of(*NUMBERS) and other.of(*NUMBERS) and self.rng.random() < 0.3:
                on += f" AND a.{self.rng.choice(one.of(*NUMBERS)).name} > b.{self.rng.choice(other.of(*NUMBERS)).name}"
            side, alias = self.rng.choice([(one, "a"), (other, "b")])
            if kind != "INNER" and side.of(*_VALUES) and self.rng.random() < 0.4:
                on += f" AND ({self._condition(side, alias)})"
            shown = [*self._plain(self._some(one.columns), "a"), *self._plain(self._some(other.columns), "b")]
            return self._select(shown, f"FROM {{0}} AS a {kind} JOIN {{1}} AS b ON {on}", [one, other])

        return join

    def unequal(self, one: Relation, other: Relation) -> Relation | None:
        """A join by something else than equality, or by nothing; of tables, since every row meets many."""
        if "JOIN" in one.flink + other.flink:
            return None
        pairs = [(a, b) for a in one.of(*NUMBERS) for b in other.of(*NUMBERS)]
        if not pairs or self.rng.random() < 0.2:
            on = "TRUE"
        else:
            a, b = self.rng.choice(pairs)
            on = f"a.{a.name} {self.rng.choice(['<', '>=', '<>'])} b.{b.name}"
        kind = self.rng.choice(["", "", "LEFT ", "RIGHT ", "FULL "])
        shown = [*self._plain(self._some(one.columns), "a"), *self._plain(self._some(other.columns), "b")]
        return self._select(shown, f"FROM {{0}} AS a {kind}JOIN {{1}} AS b ON {on}", [one, other])

    def timed(self, one: Relation, other: Relation) -> Relation | None:
        """A join of rows whose times are near."""
        on = self._on(one, other)
        if on is None or not one.of(TIME) or not other.of(TIME):
            return None
        a, b = f"a.{self.rng.choice(one.of(TIME)).name}", f"b.{self.rng.choice(other.of(TIME)).name}"
        on += f" AND {a} BETWEEN {b} - INTERVAL '20' MINUTE AND {b} + INTERVAL '5' MINUTE"
        kind = self.rng.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL"])
        shown = [*self._plain(self._some(one.columns), "a"), *self._plain(self._some(other.columns), "b")]
        return self._select(shown, f"FROM {{0}} AS a {kind} JOIN {{1}} AS b ON {on}", [one, other])

    def not_in(self, one: Relation, other: Relation) -> Relation | None:
        """Rows whose value is in no row of another relation, nulls of either among them."""
        pairs = [(a, b) for a in one.columns for b in other.columns if a.type == b.type and a.type != TIME]
        if not pairs:
            return None
        a, b = self.rng.choice(pairs)
        inner = "SELECT u.{name} FROM {{1}} AS u WHERE {condition}"
        inner = inner.format(name=b.name, condition=self._condition(other, "u"))
        rest = f"FROM {{0}} AS t WHERE t.{a.name} NOT IN ({inner})"
        return self._select(self._plain(self._some(one.columns), "t"), rest, [one, other])

    def valued(self, one: Relation, other: Relation) -> Relation | None:
        """Rows beside the value of another relation, or compared with it."""
        if not one.of(*NUMBERS) or not other.of(*NUMBERS):
            return None
        a, b = self.rng.choice(one.of(*NUMBERS)), self.rng.choice(other.of(*NUMBERS))
        shown = self._plain(self._some(one.columns), "t")
        value = f"(SELECT {self.rng.choice(['MIN', 'MAX', 'COUNT'])}(u.{b.name}) FROM {{1}} AS u)"
        rest = f"FROM {{0}} AS t WHERE t.{a.name} {self.rng.choice(['<', '>='])} {value}"
        return self._select(shown, rest, [one, other])

    def _exists(self, negation: str) -> Callable[[Relation, Relation], Relation | None]:
        def semi(one: Relation, other: Relation) -> Relation | None:
            outer, inner = self._fresh(), self._fresh()
            on = self._on(one, other, outer, inner)
            if on is None:
                return None
            if one.of(*NUMBERS) and other.of(*NUMBERS) and self.rng.random() < 0.4:
                less, more = self.rng.choice(one.of(*NUMBERS)).name, self.rng.choice(other.of(*NUMBERS)).name
                also = f"{outer}.{less} {self.rng.choice(['<', '<>', '>='])} {inner}.{more}"
                on = self.rng.choice([f"{on} AND {also}", also])
            rest = f"FROM {{0}} AS {outer} WHERE {negation}EXISTS (SELECT 1 FROM {{1}} AS {inner} WHERE {on})"
            return self._select(self._plain(self._some(one.columns), outer), rest, [one, other])

        return semi

    def _unites(self, words: str) -> Callable[[Relation, Relation], Relation | None]:
        def unite(one: Relation, other: Relation) -> Relation | None:
            left: list[Column] = []
            right: list[Column] = []
            for item in one.columns:
                same = [found for found in other.columns if found.type == item.type and found not in right]
                if same:
                    left.append(item)
                    right.append(self.rng.choice(same))
            if not left:
                return None
            parts = [
                self._select(self._plain(columns, "t"), "FROM {0} AS t", [source])
                for columns, source in ((left, one), (right, other))
            ]
            flink, duckdb = (
                f"({first[1:-1]} {words} {second[1:-1]})"
                for first, second in ((parts[0].flink, parts[1].flink), (parts[0].duckdb, parts[1].duckdb))
            )
            return Relation(flink, duckdb, parts[0].columns)

        return unite
