"""Nexmark: its tables, events by its proportions, and its queries with what DuckDB makes of them.

Of 50 events one is a person, three are auctions and 46 bids; half the bids go to one auction. A millisecond passes
between two events, so no two bids share a time. Queries are those of the benchmark's suite for Flink; a sink has a key
where rows change. q6 cannot be run by Flink. q13 finds rows of a file, and q14 calls a function of the suite's own:
`prepare` puts both into a project's folder.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform_tests.engine import nexmark_functions

START: Final = datetime(2026, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
PERSON: Final = {
    "id": "BIGINT", "name": "STRING", "emailAddress": "STRING", "creditCard": "STRING", "city": "STRING",
    "state": "STRING", "dateTime": "TIMESTAMP(3)", "extra": "STRING",
}  # fmt: skip
AUCTION: Final = {
    "id": "BIGINT", "itemName": "STRING", "description": "STRING", "initialBid": "BIGINT", "reserve": "BIGINT",
    "dateTime": "TIMESTAMP(3)", "expires": "TIMESTAMP(3)", "seller": "BIGINT", "category": "BIGINT", "extra": "STRING",
}  # fmt: skip
BID: Final = {
    "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "channel": "STRING", "url": "STRING",
    "dateTime": "TIMESTAMP(3)", "extra": "STRING",
}  # fmt: skip
TABLES: Final = {"person": PERSON, "auction": AUCTION, "bid": BID}
_AT: Final = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def events_table(options: str) -> str:
    """The one topic of all events, and the benchmark's views over it."""
    rows = ", ".join(f"{name} ROW<{_columns(columns)}>" for name, columns in TABLES.items())
    time = "CASE WHEN event_type = 0 THEN person.`dateTime` WHEN event_type = 1 THEN auction.`dateTime` ELSE"
    parts = [
        f"CREATE TABLE datagen (event_type INT, {rows}, `dateTime` AS {time} bid.`dateTime` END, {_AT}) {options};"
    ]
    for number, (name, columns) in enumerate(TABLES.items()):
        shown = ", ".join("`dateTime`" if item == "dateTime" else f"{name}.`{item}`" for item in columns)
        parts.append(f"CREATE VIEW {name} AS SELECT {shown} FROM datagen WHERE event_type = {number};")
    return "\n".join(parts)


def tables(options: str) -> str:
    """A topic of each kind of event, whose rows are only added.

    Args:
        options: the WITH clause; ``{name}`` in it is the table's name.
    """
    parts = (f"CREATE TABLE {name} ({_columns(columns)}, {_AT})" for name, columns in TABLES.items())
    return "\n".join(f"{part} {options.format(name=name)};" for part, name in zip(parts, TABLES, strict=True))


def upsert_tables(options: str) -> str:
    """Upsert topics: persons and auctions by their numbers, and bids by one of their own."""
    found = []
    for name, columns in TABLES.items():
        whole = columns if "id" in columns else {"id": "BIGINT", **columns}
        text = f"CREATE TABLE {name} ({_columns(whole)}, {_AT}, PRIMARY KEY (id) NOT ENFORCED)"
        found.append(f"{text} {options.format(name=name)};")
    return "\n".join(found)


@dataclass(frozen=True)
class Nexmark:
    """A query of the suite.

    Attributes:
        columns: of its sink.
        key: of its sink; empty where rows are only added.
        flink, duckdb: the query in the words of either; the same if `duckdb` is empty.
        beside: what else it declares here, and `beside_in_flink` there; ``{folder}`` is that of `prepare`.
    """

    columns: str
    key: str
    flink: str
    duckdb: str = ""
    beside: str = ""
    beside_in_flink: str = ""

    def target(self, options: str) -> str:
        """The sink."""
        key = f", PRIMARY KEY ({self.key}) NOT ENFORCED" if self.key else ""
        return f"CREATE TABLE target ({self.columns}{key}) {options};"

    @property
    def judged(self) -> str:
        """What DuckDB computes."""
        return (self.duckdb or self.flink).replace("`", '"')


SIDE_ROWS: Final = 10_000
"""Of the file in which q13 finds rows; its keys begin with 0."""
_BID = "auction BIGINT, bidder BIGINT, price BIGINT"
_TIME = "`dateTime` TIMESTAMP(3)"
_PRICES = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_RANKS = ", ".join(f"COUNT(*) FILTER (WHERE {item})" for item in _PRICES)
_DISTINCT = ", ".join(
    f"COUNT(DISTINCT {name}), " + ", ".join(f"COUNT(DISTINCT {name}) FILTER (WHERE {item})" for item in _PRICES)
    for name in ("bidder", "auction")
)
_COUNTS = ", ".join(
    f"{name} BIGINT" for name in ["bids", "b1", "b2", "b3", "bidders", "p1", "p2", "p3", "auctions", "a1", "a2", "a3"]
)
_FEW = ", ".join(f"{name} BIGINT" for name in ["bids", "b1", "b2", "b3"])


def _tumble(name: str) -> tuple[str, str]:
    """Windows of ten seconds in Flink's words and in DuckDB's."""
    start = "time_bucket(INTERVAL 10 SECOND, `dateTime`)"
    return (
        f"TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))",
        f"(SELECT *, {start} AS window_start, {start} + INTERVAL 10 SECOND AS window_end FROM {name})",
    )


_HOP = (
    "TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))",
    "(SELECT *, time_bucket(INTERVAL 2 SECOND, `dateTime`) - n * INTERVAL 2 SECOND AS window_start,"
    " time_bucket(INTERVAL 2 SECOND, `dateTime`) + (5 - n) * INTERVAL 2 SECOND AS window_end FROM bid, range(5) r(n))",
)
_EDGES = "window_start, window_end"
_HOT = (
    "SELECT X.auction, X.num, X.starttime FROM (SELECT auction, COUNT(*) AS num, window_start AS starttime,"
    " window_end AS"
    f" endtime FROM {{0}} t GROUP BY auction, {_EDGES}) AS X JOIN (SELECT MAX(C.num) AS maxn, C.starttime, C.endtime"
    f" FROM"
    f" (SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime FROM {{0}} t GROUP BY auction,"
    f" {_EDGES})"
    " AS C GROUP BY C.starttime, C.endtime) AS M ON X.starttime = M.starttime AND X.endtime = M.endtime AND X.num >="
    " M.maxn"
)
_HIGHEST = (
    "SELECT B.auction, B.price, B.bidder, B.`dateTime`, B.extra FROM bid B JOIN (SELECT MAX(price) AS maxprice,"
    " window_end"
    f" AS `dateTime` FROM {{0}} t GROUP BY {_EDGES}) B1 ON B.price = B1.maxprice WHERE B.`dateTime` BETWEEN"
    f" B1.`dateTime`"
    " - INTERVAL '10' SECOND AND B1.`dateTime`"
)
_NEW = (
    f"SELECT P.id, P.name, P.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime FROM"
    f" {{0}} t"
    f" GROUP BY id, name, {_EDGES}) P JOIN (SELECT seller, window_start AS starttime, window_end AS endtime FROM"
    f" {{1}} t"
    f" GROUP BY seller, {_EDGES}) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime"
)
_MAXIMA = (
    "(SELECT MAX(B.price) AS final, A.category FROM auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN"
    " A.`dateTime` AND A.expires GROUP BY A.id, A.category) Q GROUP BY Q.category"
)
_SESSIONS = (
    "SELECT bidder, COUNT(*), MIN(`dateTime`), MAX(`dateTime`) + INTERVAL 10 SECOND FROM (SELECT *, SUM(fresh) OVER"
    " (PARTITION BY bidder ORDER BY `dateTime`) AS number FROM (SELECT *, CASE WHEN `dateTime` - LAG(`dateTime`) OVER"
    " (PARTITION BY bidder ORDER BY `dateTime`) <= INTERVAL 10 SECOND THEN 0 ELSE 1 END AS fresh FROM bid)) GROUP BY"
    " bidder, number"
)
_GAP = "(B.`dateTime`, INTERVAL '10' SECOND)"
_DAY = ("DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')", "strftime(`dateTime`, '%Y-%m-%d')")
_MINUTE = ("DATE_FORMAT(`dateTime`, 'HH:mm')", "strftime(`dateTime`, '%H:%M')")
_CHANNEL = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_CHANNELS = (
    "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google'"
    " THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {0} END FROM bid"
    " WHERE {0} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
)
_WIDE = (
    "SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.`dateTime`, B.extra, A.itemName, A.description,"
    " A.initialBid, A.reserve, A.`dateTime`, A.expires, A.seller, A.category, A.extra FROM bid AS B INNER JOIN"
    " auction AS"
    " A ON B.auction = A.id WHERE A.category = 10"
)
_SIDE = "CREATE TABLE side_input (key BIGINT, `value` VARCHAR)"
_SIDE_FILE = "side_input.txt"
_COUNTED = (
    "SELECT auction, bidder, 0.908 * price, CASE WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'"
    " WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime' ELSE 'otherTime' END, `dateTime`, extra,"
    " {} FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"
)
_OFTEN = "COUNT(*), {1}, MIN(price), MAX(price), {2}, {3} FROM bid GROUP BY auction, {0}"
_TUMBLED = {name: _tumble(name) for name in TABLES}

QUERIES: Final = {
    "q0": Nexmark(f"{_BID}, {_TIME}, extra STRING", "", "SELECT auction, bidder, price, `dateTime`, extra FROM bid"),
    "q1": Nexmark(
        f"auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), {_TIME}, extra STRING", "",
        "SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid",
    ),
    "q2": Nexmark("auction BIGINT, price BIGINT", "", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": Nexmark(
        "name STRING, city STRING, state STRING, id BIGINT", "id",
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id WHERE"
        " A.category"
        " = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
    ),
    "q4": Nexmark(
        "id BIGINT, final BIGINT", "id", f"SELECT Q.category, AVG(Q.final) FROM {_MAXIMA}",
        f"SELECT Q.category, CAST(trunc(SUM(Q.final) / COUNT(*)) AS BIGINT) FROM {_MAXIMA}",
    ),
    "q5": Nexmark("auction BIGINT, num BIGINT, starttime TIMESTAMP(3)", "auction, starttime", _HOT.format(_HOP[0]),
                  _HOT.format(_HOP[1])),
    "q7": Nexmark(
        f"auction BIGINT, price BIGINT, bidder BIGINT, {_TIME}, extra STRING", "auction, bidder, `dateTime`",
        _HIGHEST.format(_TUMBLED["bid"][0]),
        _HIGHEST.format(_TUMBLED["bid"][1]).replace("SELECT B.", "SELECT DISTINCT B.", 1),
    ),
    "q8": Nexmark(
        "id BIGINT, name STRING, stime TIMESTAMP(3)", "id, stime",
        *(_NEW.format(_TUMBLED["person"][at], _TUMBLED["auction"][at]) for at in (0, 1)),
    ),
    "q9": Nexmark(
        "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3),"
        " expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, auction BIGINT, bidder BIGINT, price"
        " BIGINT,"
        " bid_dateTime TIMESTAMP(3), bid_extra STRING", "id",
        "SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra, auction,"
        " bidder, price, bid_dateTime, bid_extra FROM (SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS"
        " bid_dateTime, B.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime`"
        " ASC) AS rownum FROM auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND"
        " A.expires) t WHERE rownum <= 1",
    ),
    "q10": Nexmark(
        f"{_BID}, {_TIME}, extra STRING, dt STRING, hm STRING", "",
        *(f"SELECT auction, bidder, price, `dateTime`, extra, {_DAY[at]}, {_MINUTE[at]} FROM bid" for at in (0, 1)),
    ),
    "q11": Nexmark(
        "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)", "bidder, starttime",
        f"SELECT B.bidder, COUNT(*) AS bid_count, SESSION_START{_GAP}, SESSION_END{_GAP} FROM bid B GROUP BY B.bidder,"
        f" SESSION{_GAP}", _SESSIONS,
    ),
    "q12": Nexmark(
        "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)", "bidder, starttime",
        "SELECT bidder, COUNT(*), window_start, window_end FROM TABLE(TUMBLE(TABLE clocked, DESCRIPTOR(p_time),"
        " INTERVAL"
        " '10' SECOND)) GROUP BY bidder, window_start, window_end",
    ),
    "q13": Nexmark(
        f"{_BID}, {_TIME}, `value` STRING", "auction, bidder, `dateTime`",
        "SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value` FROM (SELECT *, PROCTIME() AS p_time FROM bid) B"
        " JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON mod(B.auction, 10000) = S.key",
        "SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value` FROM bid B JOIN (SELECT i AS key, 'side ' || i AS"
        f" `value` FROM range({SIDE_ROWS}) t(i)) S ON B.auction % 10000 = S.key",
        f"{_SIDE} WITH ('connector' = 'filesystem', 'path' = '{{folder}}/{_SIDE_FILE}', 'format' = 'csv');",
        f"{_SIDE} WITH ('connector.type' = 'filesystem', 'connector.path' = 'file://{{folder}}/{_SIDE_FILE}',"
        " 'format.type' = 'csv');",
    ),
    "q14": Nexmark(
        "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), bidTimeType STRING, bidTime TIMESTAMP(3), extra STRING,"
        " c_counts BIGINT", "",
        _COUNTED.format("count_char(extra, 'c')"), _COUNTED.format("len(extra) - len(replace(extra, 'c', ''))"),
        "CREATE FUNCTION count_char AS 'nexmark_functions.count_char' LANGUAGE PYTHON;",
        "CREATE FUNCTION count_char AS 'nexmark.CountChar' LANGUAGE JAVA USING JAR '{folder}/nexmark.jar';",
    ),
    "q15": Nexmark(
        f"`day` STRING, {_COUNTS}", "`day`",
        *(f"SELECT {day}, COUNT(*), {_RANKS}, {_DISTINCT} FROM bid GROUP BY {day}" for day in _DAY),
    ),
    "q16": Nexmark(
        f"channel STRING, `day` STRING, `minute` STRING, {_COUNTS}", "channel, `day`",
        *(f"SELECT channel, {day}, MAX({minute}), COUNT(*), {_RANKS}, {_DISTINCT} FROM bid GROUP BY channel, {day}"
          for day, minute in zip(_DAY, _MINUTE, strict=True)),
    ),
    "q17": Nexmark(
        f"auction BIGINT, `day` STRING, {_FEW}, least BIGINT, most BIGINT, mean BIGINT, total BIGINT", "auction, `day`",
        f"SELECT auction, {_DAY[0]}, " + _OFTEN.format(_DAY[0], _RANKS, "AVG(price)", "SUM(price)"),
        f"SELECT auction, {_DAY[1]}, "
        + _OFTEN.format(_DAY[1], _RANKS, "CAST(trunc(SUM(price) / COUNT(*)) AS BIGINT)", "CAST(SUM(price) AS BIGINT)"),
    ),
    "q18": Nexmark(
        f"{_BID}, channel STRING, url STRING, {_TIME}, extra STRING", "bidder, auction",
        "SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
        " bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid) t WHERE rank_number <= 1",
    ),
    "q19": Nexmark(
        f"{_BID}, channel STRING, url STRING, {_TIME}, extra STRING, rank_number BIGINT", "auction, rank_number",
        *(f"SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number FROM (SELECT *, ROW_NUMBER()"
          f" OVER"
          f" (PARTITION BY auction ORDER BY price DESC{ties}) AS rank_number FROM bid) t WHERE rank_number <= 10"
          for ties in ("", ", `dateTime`")),
    ),
    "q20": Nexmark(
        f"{_BID}, channel STRING, url STRING, bid_dateTime TIMESTAMP(3), bid_extra STRING, itemName STRING, description"
        " STRING, initialBid BIGINT, reserve BIGINT, auction_dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller"
        " BIGINT,"
        " category BIGINT, auction_extra STRING", "auction, bidder, bid_dateTime", _WIDE,
    ),
    "q21": Nexmark(
        f"{_BID}, channel STRING, channel_id STRING", "", _CHANNELS.format(_CHANNEL),
        _CHANNELS.format(f"NULLIF({_CHANNEL}, '')"),
    ),
    "q22": Nexmark(
        f"{_BID}, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING", "",
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4),"
        " SPLIT_INDEX(url, '/',"
        " 5) FROM bid",
        "SELECT auction, bidder, price, channel, string_split(url, '/')[4], string_split(url, '/')[5],"
        " string_split(url, '/')[6] FROM bid",
    ),
}  # fmt: skip
CLOCKED: Final = "CREATE VIEW clocked AS SELECT *, PROCTIME() AS p_time FROM bid;"
"""What q12 reads."""


def prepare(folder: Path) -> None:
    """Write the file in which q13 finds rows, and the module with the function that q14 calls."""
    (folder / _SIDE_FILE).write_text("".join(f"{key},side {key}\n" for key in range(SIDE_ROWS)), "utf-8")
    module = Path(nexmark_functions.__file__)
    (folder / module.name).write_text(module.read_text("utf-8"), "utf-8")


def events(count: int, seed: int = 1) -> dict[str, dict[str, Any]]:
    """Columns of the rows of each table, in the order of their times, with the number of each event as `_at`."""
    rng = random.Random(seed)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    for at in range(count):
        epoch, nth = divmod(at, 50)
        moment = START + timedelta(milliseconds=at)
        persons, auctions = 1000 + epoch + (nth >= 1), 1000 + epoch * 3 + min(max(nth - 1, 0), 3)
        if nth == 0:
            name, city = rng.choice(["Peter", "Paul", "Luke"]), rng.choice(["Boise", "Kent", "Bend"])
            state = rng.choice(["AZ", "CA", "ID", "OR", "WA", "WY"])
            found["person"].append((1000 + epoch, name, f"{at}@b.com", "1234", city, state, moment, "x"))
        elif nth < 4:
            seller = rng.randrange(max(1000, persons - 20), persons)
            expires, category = moment + timedelta(milliseconds=1 + rng.randrange(2000)), 10 + rng.randrange(5)
            own = 1000 + epoch * 3 + nth - 1
            found["auction"].append((own, f"item {own}", "a thing", 5, 50, moment, expires, seller, category, "y"))
        else:
            hot = rng.random() < 0.5
            auction = (auctions - 1) // 100 * 100 if hot else rng.randrange(max(1000, auctions - 30), auctions)
            bidder = rng.randrange(max(1000, persons - 20), persons)
            channel = rng.choice(["Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2"])
            price, tail = int(10 ** (rng.random() * 6) * 100), rng.choice(["", "&channel_id=77"])
            url = f"https://www.nexmark.com/a/{at % 7}/item.htm?query=1{tail}"
            found["bid"].append(
                (max(auction, 1000), bidder, price, channel, url, moment, ("z", "c", "", "cc c")[at % 4])
            )
    columns = {}
    for name, kinds in TABLES.items():
        arrays = list(zip(*found[name], strict=True))
        columns[name] = {
            item: pa.array(values, pa.timestamp("us"))
            if kinds[item].startswith("TIMESTAMP")
            else np.array(values, np.int64)
            if kinds[item] == "BIGINT"
            else pa.array(values)
            for item, values in zip(kinds, arrays, strict=True)
        }
    return columns
