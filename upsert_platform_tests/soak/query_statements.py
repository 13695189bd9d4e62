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


TABLES: Final = tuple(
    Relation(name, name, tuple(Column(*item) for item in columns))
    for name, columns in (
        ("users", (("id", INT), ("region", TEXT), ("age", INT))),
        ("orders", (("oid", BIGINT), ("uid", INT), ("amount", BIGINT), ("kind", TEXT))),
        ("views", (("uid", INT), ("page", TEXT), ("secs", BIGINT))),
    )
)
_VALUES: Final = {INT: ("1", "2", "5"), BIGINT: ("0", "5", "40"), TEXT: ("'eu'", "'a'", "'p'", "''")}
_WINDOWS: Final = {
    "TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 10 MINUTE, ts) AS window_start,"
        " time_bucket(INTERVAL 10 MINUTE, ts) + INTERVAL 10 MINUTE AS window_end FROM orders WHERE ts IS NOT NULL"
    ),
    "HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 5 MINUTE, ts) - n * INTERVAL 5 MINUTE AS window_start,"
        " time_bucket(INTERVAL 5 MINUTE, ts) - n * INTERVAL 5 MINUTE + INTERVAL 15 MINUTE AS window_end"
        " FROM orders, range(3) r(n) WHERE ts IS NOT NULL"
    ),
    "SESSION(TABLE orders PARTITION BY kind, DESCRIPTOR(ts), INTERVAL '5' MINUTES)": (
        "SELECT *, MIN(ts) OVER (PARTITION BY kind, number) AS window_start, MAX(ts) OVER (PARTITION BY kind, number) +"
        " INTERVAL 5 MINUTE AS window_end FROM (SELECT *, SUM(fresh) OVER (PARTITION BY kind ORDER BY ts, oid ROWS"
        " UNBOUNDED PRECEDING) AS number FROM (SELECT *, CASE WHEN ts - LAG(ts) OVER (PARTITION BY kind ORDER BY ts,"
        " oid) <= INTERVAL 5 MINUTE THEN 0 ELSE 1 END AS fresh FROM orders WHERE ts IS NOT NULL))"
    ),
    "CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '20' MINUTES)": (
        "SELECT *, time_bucket(INTERVAL 20 MINUTE, ts) AS window_start,"
        " time_bucket(INTERVAL 20 MINUTE, ts) + (n + 1) * INTERVAL 5 MINUTE AS window_end"
        " FROM orders, range(4) r(n) WHERE ts < time_bucket(INTERVAL 20 MINUTE, ts) + (n + 1) * INTERVAL 5 MINUTE"
    ),
}


class Maker:
    """Makes random statements."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0
        self.unary: dict[str, Callable[[Relation], Relation | None]] = {
            "filter": self.filtered, "groups": self.grouped, "groupings": self.groupings,
            "everything": self.totalled, "distinct": self.distinct, "first rows": self.first_rows,
            "first and last values": self.arrived, "frames": self.framed,
        }  # fmt: skip
        self.binary: dict[str, Callable[[Relation, Relation], Relation | None]] = {
            **{f"{kind.lower()} join": self._joins(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")},
            "semi join": self._exists(""), "anti join": self._exists("NOT "),
            "union all": self._unites("UNION ALL"), "union": self._unites("UNION"),
        }  # fmt: skip

    def statement(self, depth: int) -> Statement:
        """A statement of so many operators, one over the other."""
        while True:
            made = self._made(depth)
            if made is not None and len(made.classes) >= depth:
                return Statement(made.flink[1:-1], made.duckdb[1:-1], made.classes)

    def _made(self, depth: int) -> Relation | None:
        if not depth:
            return self.rng.choice(TABLES)
        if depth == 1 and self.rng.random() < 0.08:
            return self.windowed()
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

    def framed(self, one: Relation) -> Relation | None:
        """Functions of the rows before each row."""
        columns = list(one.columns)
        self.rng.shuffle(columns)
        by = columns.pop().name if len(columns) > 1 and self.rng.random() < 0.8 else None
        order = ", ".join(
            f"t.{item.name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"
            for item in columns
        )
        window = f"{f'PARTITION BY t.{by} ' if by else ''}ORDER BY {order}"
        back = self.rng.choice(["UNBOUNDED", "0", "1", "3"])
        frame = self.rng.choice([f" ROWS BETWEEN {back} PRECEDING AND CURRENT ROW", ""])
        calls: list[tuple[str, str, str]] = []
        for _ in range(self.rng.randint(1, 3)):
            name = self.rng.choice(["COUNT", "MIN", "MAX", "SUM", "LAG", "LEAD", "RANK", "DENSE_RANK"])
            item = self.rng.choice(one.of(*NUMBERS) if name == "SUM" and one.of(*NUMBERS) else one.columns)
            if name == "SUM" and item.type not in NUMBERS:
                continue
            ranked = name.endswith("RANK")
            text = f"{name}({'' if ranked else f't.{item.name}'}) OVER ({window}"
            text += ")" if ranked or name in ("LAG", "LEAD") else f"{frame})"
            calls.append((text, text, BIGINT if ranked or name == "COUNT" else item.type))
        if not calls:
            return None
        return self._select([*self._plain(one.columns, "t"), *calls], "FROM {0} AS t", [one])

    def windowed(self) -> Relation:
        flink, duckdb = self.rng.choice(list(_WINDOWS.items()))
        by = self.rng.choice([[], [Column("kind", TEXT)], [Column("uid", INT)]])
        source = Relation(f"TABLE({flink})", f"({duckdb})", (*TABLES[1].columns,))
        names = ["window_start", "window_end", *(item.name for item in by)]
        shown = [("window_start", "window_start", TIME), ("window_end", "window_end", TIME)]
        shown += [(item.name, item.name, item.type) for item in by]
        calls = [("COUNT(*)", "COUNT(*)", BIGINT), ("SUM(amount)", "SUM(amount)", BIGINT)]
        made = self._select([*shown, *calls], f"FROM {{0}} GROUP BY {', '.join(names)}", [source])
        return Relation(made.flink, made.duckdb, made.columns, ("window",))

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
            if kind == "INNER" and one.of(BIGINT) and other.of(BIGINT) and self.rng.random() < 0.3:
                on += f" AND a.{self.rng.choice(one.of(BIGINT)).name} > b.{self.rng.choice(other.of(BIGINT)).name}"
            shown = [*self._plain(self._some(one.columns), "a"), *self._plain(self._some(other.columns), "b")]
            return self._select(shown, f"FROM {{0}} AS a {kind} JOIN {{1}} AS b ON {on}", [one, other])

        return join

    def _exists(self, negation: str) -> Callable[[Relation, Relation], Relation | None]:
        def semi(one: Relation, other: Relation) -> Relation | None:
            outer, inner = self._fresh(), self._fresh()
            on = self._on(one, other, outer, inner)
            if on is None:
                return None
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
