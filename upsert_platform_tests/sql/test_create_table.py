from __future__ import annotations

import pytest

from upsert_platform.core.model import ColumnKind
from upsert_platform_tests.sql.reading import errors, one_table, read

WITH = "WITH ('connector' = 'kafka')"

# The examples of vendors' documents, by what is particular in them.
VENDOR_EXAMPLES = {
    "no blanks around = and WITH": """CREATE TABLE upsert_kafka_sink(
user_region STRING,
pv BIGINT,
uv BIGINT,
PRIMARY KEY(user_region) NOT ENFORCED
)WITH(
'connector'='upsert-kafka',
'topic'='<yourTopicName>',
'properties.bootstrap.servers'='...',
'key.format'='avro',
'value.format'='avro'
);""",
    "all on one line, watermark": "CREATE TABLE pageviews( user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP,"
    " user_region STRING, WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND )WITH( 'connector'='kafka',"
    " 'topic'='<yourTopicName>', 'properties.bootstrap.servers'='...', 'format'='json' );",
    "metadata column, dots for omitted options, no semicolon": """CREATE TABLE KafkaTable (
  `ts` TIMESTAMP(3) METADATA FROM 'timestamp',
  `user_id` BIGINT,
  `item_id` BIGINT,
  `behavior` STRING,
  PRIMARY KEY (`user_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  ...

  'key.format' = 'json',
  'key.json.ignore-parse-errors' = 'true',

  'value.format' = 'json',
  'value.json.fail-on-missing-field' = 'false',
  'value.fields-include' = 'EXCEPT_KEY'
)""",
    "comments between options": """CREATE TABLE `kafka_json_source_table` (
  `id` INT,
  `name` STRING
) WITH (
  -- where from
  'connector' = 'kafka',
  'topic' = 'Data-Input',  -- a topic
  'scan.startup.mode' = 'latest-offset', -- latest-offset / earliest-offset / specific-offsets
  'properties.bootstrap.servers' = '172.28.28.13:9092',  -- an address
  'properties.group.id' = 'testGroup', -- required

  -- format
  'format' = 'json',
  'json.fail-on-missing-field' = 'false',  -- a choice
  'json.ignore-parse-errors' = 'true'    -- another
);""",
    "omitted columns and options, JAAS text": """CREATE TABLE `YourTable` (
...
) WITH (
  ...
  'properties.sasl.jaas.config' = 'PlainLoginModule required username="u#n" password="p";',
  'properties.security.protocol' = 'SASL_PLAINTEXT',
  'properties.sasl.mechanism' = 'PLAIN',
  ...
);""",
    "partitioned by": """CREATE TABLE mf_flink_part (
        id BIGINT,
        name STRING,
        age INT,
        status BOOLEAN,
        dd STRING,
        hh STRING,
        PRIMARY KEY(id) NOT ENFORCED
      ) PARTITIONED BY (`dd`,`hh`)
      WITH (
        'connector' = 'maxcompute',
        'table.name' = 'mf_flink_tt_part',
        'sink.operation' = 'upsert',
        'odps.access.id'='id****',
        'odps.access.key'='key****',
        'odps.end.point'='http://service.cn-beijing.maxcompute.aliyun.com/api',
        'odps.project.name'='mf_mc_bj'
      );""",
    "temporary, computed column, quotes in a value": """CREATE TEMPORARY TABLE fake_src_table
    (
        c1 int,
        c2 VARCHAR,
        gt as CURRENT_TIMESTAMP
    ) with (
      'connector' = 'faker',
      'fields.c2.expression' = '#{superhero.name}',
      'rows-per-second' = '100',
      'fields.c1.expression' = '#{number.numberBetween ''0'',''1000''}'
    );""",
}


@pytest.mark.parametrize("sql", VENDOR_EXAMPLES.values(), ids=VENDOR_EXAMPLES.keys())
def test_vendor_examples_are_read_as_they_are(sql: str) -> None:
    table = one_table(sql)
    assert table.options


def test_details_of_vendor_examples() -> None:
    table = one_table(VENDOR_EXAMPLES["temporary, computed column, quotes in a value"])
    assert table.options["fields.c1.expression"] == "#{number.numberBetween '0','1000'}"
    assert [str(column.type) for column in table.columns] == ["INT", "STRING", "None"]
    assert table.column("gt").kind is ColumnKind.COMPUTED
    table = one_table(VENDOR_EXAMPLES["partitioned by"])
    assert table.partitioned_by == ("dd", "hh")
    assert len(table.options) == 7
    table = one_table(VENDOR_EXAMPLES["all on one line, watermark"])
    assert table.watermark == "WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND"
    assert str(table.column("viewtime").type) == "TIMESTAMP(6)"


def test_every_kind_of_column() -> None:
    table = one_table(f"""
        CREATE TABLE IF NOT EXISTS `my db`.t (
          id BIGINT NOT NULL COMMENT 'it''s the key',
          `a``b` ROW<`x y` INT, z ARRAY<ROW<k STRING NOT NULL, v BYTES> NOT NULL>> COMMENT 'nested',
          tags MAP<STRING, MULTISET<INT>>,
          amount NUMERIC(12, 2),
          at TIMESTAMP(3) WITH LOCAL TIME ZONE METADATA FROM 'timestamp',
          `partition` INT METADATA VIRTUAL,
          twice AS amount * 2 COMMENT 'computed',
          day1 AS DATE_FORMAT(at, 'yyyy-MM-dd'),
          WATERMARK FOR at AS at - INTERVAL '5' SECOND,
          CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED
        ) COMMENT 'a table' {WITH}
    """)
    assert table.name == "my db.t"
    assert table.comment == "a table"
    assert table.primary_key == ("id",)
    columns = {column.name: column for column in table.columns}
    assert list(columns) == ["id", "a`b", "tags", "amount", "at", "partition", "twice", "day1"]
    assert columns["id"].comment == "it's the key"
    assert str(columns["a`b"].type) == "ROW<`x y` INT, `z` ARRAY<ROW<`k` STRING NOT NULL, `v` BYTES> NOT NULL>>"
    assert str(columns["tags"].type) == "MAP<STRING, MULTISET<INT>>"
    assert str(columns["amount"].type) == "DECIMAL(12, 2)"
    assert str(columns["at"].type) == "TIMESTAMP_LTZ(3)"
    assert (columns["at"].kind, columns["at"].metadata_key, columns["at"].virtual) == ("metadata", "timestamp", False)
    assert (columns["partition"].metadata_key, columns["partition"].virtual) == ("partition", True)
    assert columns["twice"].expression == "CAST(`amount` * CAST(2 AS DECIMAL(10,0)) AS DECIMAL(23,2))"
    assert columns["twice"].comment == "computed"
    assert columns["day1"].expression == "DATE_FORMAT(`at`, 'yyyy-MM-dd')"
    assert [column.name for column in table.physical_columns] == ["id", "a`b", "tags", "amount"]


def test_key_columns_become_not_null_as_in_flink() -> None:
    table = one_table(f"CREATE TABLE t (a INT, b STRING, PRIMARY KEY (b, a) NOT ENFORCED) {WITH}")
    assert table.primary_key == ("b", "a")
    assert [str(column.type) for column in table.columns] == ["INT NOT NULL", "STRING NOT NULL"]


def test_inline_primary_key() -> None:
    table = one_table(f"CREATE TABLE t (a INT NOT NULL PRIMARY KEY NOT ENFORCED COMMENT 'k', b INT) {WITH}")
    assert table.primary_key == ("a",)


def test_places_of_columns_and_options() -> None:
    table = one_table("CREATE TABLE t (\n  a INT,\n  b INT\n) WITH (\n  'connector' = 'kafka',\n  'topic' = 'x')")
    assert [column.location.line for column in table.columns if column.location] == [2, 3]
    place = table.options.location("topic")
    assert place is not None
    assert (place.file, place.line) == ("f.sql", 6)


REFUSED = [
    ("V2 ENFORCED", "a INT,\n PRIMARY KEY (a) ENFORCED", 2, "add NOT ENFORCED"),
    ("V2 default is ENFORCED", "a INT,\n PRIMARY KEY (a)", 2, "add NOT ENFORCED"),
    ("V3 key on computed", "a INT, b AS a + 1,\n PRIMARY KEY (b) NOT ENFORCED", 2, "'b' is computed"),
    ("V3 key on metadata", "a INT METADATA,\n PRIMARY KEY (a) NOT ENFORCED", 2, "'a' is metadata"),
    ("key unknown", "user_id INT,\n PRIMARY KEY (userid) NOT ENFORCED", 2, "not a column; did you mean 'user_id'?"),
    ("key twice", "a INT PRIMARY KEY NOT ENFORCED,\n PRIMARY KEY (a) NOT ENFORCED", 2, "a table has one PRIMARY KEY"),
    ("key column twice", "a INT,\n PRIMARY KEY (a, a) NOT ENFORCED", 2, "names 'a' twice"),
    ("column twice", "a INT,\n a STRING", 2, "column 'a' is declared twice"),
    ("column twice in case", "a INT,\n A STRING", 2, "differs from 'a' in case only"),
    ("unknown type", "a INT,\n b STRNG", 2, "unknown type 'STRNG'"),
    ("type out of bounds", "a INT,\n b DECIMAL(99)", 2, "column 'b'"),
    ("no type", "a INT,\n b", 2, "a type expected after the column name 'b'"),
    ("trailing comma", "a INT\n,", 2, "column name expected, but ')' stands there"),
    ("DEFAULT", "a INT,\n b INT DEFAULT 0", 2, "Flink's DDL has no DEFAULT"),
    ("UNIQUE", "a INT,\n UNIQUE (a)", 2, "UNIQUE constraints are not supported"),
    ("watermark column unknown", "a INT,\n WATERMARK FOR ts AS ts", 2, "WATERMARK FOR names 'ts'"),
    ("two watermarks", "a INT, WATERMARK FOR a AS a,\n WATERMARK FOR a AS a", 2, "one WATERMARK"),
    ("computed column unknown", "a INT,\n b AS c + 1", 2, "computed column 'b': unknown column 'c'"),
    ("computed over computed", "a INT, b AS a + 1,\n c AS b + 1", 2, "a computed column cannot use another one"),
    ("computed not SQL", "a INT,\n b AS a +", 2, "computed column 'b': the expression is not SQL"),
    ("aggregate in a computed column", "a INT,\n b AS SUM(a)", 2, "the aggregate SUM is not supported here"),
    ("no columns", "", 1, "it declares no columns"),
]


@pytest.mark.parametrize(("columns", "line", "message"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_faults_of_columns(columns: str, line: int, message: str) -> None:
    _, problems = read(f"CREATE TABLE t ({columns}) {WITH};")
    (found,) = errors(problems)
    assert found.startswith(f"{line}: ")
    assert message in found


AFTER = [
    ("unquoted value", "WITH ('connector' = 'kafka',\n 'a.b' = 4)", 2, "its value stands in single quotes: 'a.b'"),
    ("option twice", "WITH ('connector' = 'kafka',\n'a' = '1',\n 'a' = '2')", 3, "given twice (first on line 2)"),
    ("no =", "WITH ('connector' = 'kafka',\n 'a' '1')", 2, "option 'a' has no value"),
    ("comma too many", "WITH ('connector' = 'kafka',\n)", 2, "'value', both in single quotes"),
    ("comma missing", "WITH ('connector' = 'kafka'\n 'a' = '1')", 2, "',' or ')' expected after an option"),
    ("double quotes", "WITH ('connector' = 'kafka',\n \"a\" = '1')", 2, "'value', both in single quotes"),
    ("CTAS", "WITH ('connector' = 'kafka')\n AS SELECT * FROM x", 2, "CREATE TABLE ... AS SELECT is not supported"),
    ("distributed", "\nDISTRIBUTED BY HASH(a) INTO 4 BUCKETS", 2, "DISTRIBUTED BY is not supported"),
    ("partition column unknown", "\nPARTITIONED BY (dd) WITH ('connector' = 'kafka')", 2, "'dd', which is not a"),
    ("semicolon missing", "WITH ('connector' = 'kafka')\nCREATE TABLE u (a INT)", 2, "';', COMMENT, PARTITIONED BY"),
    ("MaxCompute's own DDL", "tblproperties (\"transactional\"=\"true\")", 1, "DDL of MaxCompute itself"),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "line", "message"), [case[1:] for case in AFTER], ids=[case[0] for case in AFTER])
def test_faults_after_the_columns(clauses: str, line: int, message: str) -> None:
    _, problems = read(f"CREATE TABLE t (a INT) {clauses};")
    (found,) = errors(problems)
    assert found.startswith(f"{line}: ")
    assert message in found


def test_every_fault_of_a_file_is_told_at_once() -> None:
    _, problems = read(
        """CREATE TABLE a (
  id BIGNT,
  name STRING NOT,
  x INT,
  PRIMARY KEY (id)
) WITH (
  'connector' = kafka,
  'topic'
);
DROP TABLE a;
CREATE TABLE b (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka');
INSERT INTO b SELECT idd FROM b;
"""
    )
    assert [int(found.split(":")[0]) for found in errors(problems)] == [2, 3, 5, 7, 8, 10, 12]


def test_two_tables_of_one_name() -> None:
    _, problems = read(f"CREATE TABLE t (a INT) {WITH};\nCREATE TABLE t (a INT) {WITH};")
    assert errors(problems) == ["2: table 't' is declared twice (first at f.sql:1); rename or remove one"]
    _, problems = read(f"CREATE TABLE t (a INT) {WITH};\nCREATE TABLE IF NOT EXISTS t (a INT) {WITH};")
    assert [problem.severity for problem in problems] == ["warning"]


BASE = """CREATE TABLE base (
  id INT, v STRING, at TIMESTAMP(3) METADATA FROM 'timestamp', c AS id + 1,
  PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR at AS at
) PARTITIONED BY (v) WITH ('connector' = 'kafka', 'topic' = 'x');
"""


def test_like_takes_everything_and_overwrites_options() -> None:
    scripts, problems = read(BASE + "CREATE TABLE t (extra INT) WITH ('topic' = 'y') LIKE base;")
    assert errors(problems) == []
    table = scripts.tables["t"]
    assert [column.name for column in table.columns] == ["id", "v", "at", "c", "extra"]
    assert dict(table.options) == {"connector": "kafka", "topic": "y"}
    assert (table.primary_key, table.partitioned_by) == (("id",), ("v",))
    assert table.watermark is not None


def test_like_excludes() -> None:
    like = "LIKE base (EXCLUDING ALL INCLUDING GENERATED EXCLUDING WATERMARKS)"
    scripts, problems = read(BASE + f"CREATE TABLE t WITH ('connector' = 'tablestore') {like};")
    assert errors(problems) == []
    table = scripts.tables["t"]
    assert [column.name for column in table.columns] == ["id", "v", "c"]
    assert dict(table.options) == {"connector": "tablestore"}
    assert (table.primary_key, table.partitioned_by, table.watermark) == ((), (), None)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE t LIKE nothing;", "LIKE names 'nothing', which is not declared"),
        ("CREATE TABLE t LIKE t;", "LIKE leads back to the table itself"),
        ("CREATE TABLE t (id INT) LIKE base;", "column 'id' is declared here and in 'base'"),
        ("CREATE TABLE t (c AS 1) LIKE base;", "say OVERWRITING GENERATED"),
        ("CREATE TABLE t (x INT PRIMARY KEY NOT ENFORCED) LIKE base;", "say EXCLUDING CONSTRAINTS"),
        ("CREATE TABLE t WITH ('topic' = 'y') LIKE base (INCLUDING OPTIONS);", "option 'topic' is declared here"),
        ("CREATE TABLE t LIKE base (INCLUDING EVERYTHING);", "expected after INCLUDING"),
    ],
)
def test_faults_of_like(statement: str, message: str) -> None:
    _, problems = read(BASE + statement)
    assert message in errors(problems)[0]


@pytest.mark.parametrize(
    ("statement", "severity", "message"),
    [
        ("SET 'execution.checkpointing.interval' = '3min'", "warning", "schedule or sensor"),
        ("SET parallelism.default = 4", "warning", "Spark's cores"),
        ("set odps.sql.type.system.odps2=true", "warning", "session flag of MaxCompute"),
        ("SET 'table.exec.sink.not-null-enforcer' = 'DROP'", "error", "never dropped silently"),
        ("SET 'table.exec.emit.allow-lateness' = 'soon'", "error", "takes a duration: '1 h'"),
        ("SET 'table.exec.state.ttl' = 'ever'", "error", "takes a duration: '36 h'"),
        ("SET 'table.local-time-zone' = 'Asia/Shanghai'", "error", "computed in UTC"),
        ("SET 'anything' = 'else'", "warning", "no effect here"),
        ("RESET", "warning", "no effect"),
        ("DROP TABLE t", "error", "drops nothing"),
        ("DROP TABLE IF EXISTS t", "error", "drops nothing"),
        ("DROP TABLE IF EXISTS other", "warning", "declares nothing of that name"),
        ("USE MODULES core", "error", "modules do not exist"),
        ("SHOW TABLES", "warning", "SHOW has no effect"),
        ("DESCRIBE t", "warning", "DESCRIBE has no effect"),
        ("EXPLAIN INSERT INTO t SELECT * FROM t", "warning", "'upsert-platform explain' shows"),
        ("CREATE FUNCTION f AS 'x'", "error", "functions are written in Python"),
        ("SELECT * FROM t", "error", "needs a target"),
        ("FROB x", "error", "a statement cannot begin so: CREATE TABLE"),
        ("INSERT TO t SELECT 1", "error", "INTO expected"),
    ],
)
def test_other_statements(statement: str, severity: str, message: str) -> None:
    _, problems = read(f"CREATE TABLE t (a INT) {WITH};\n{statement};")
    (problem,) = problems
    assert problem.severity == severity
    assert message in problem.message
    assert problem.location is not None
    assert problem.location.line == 2


def test_utc_as_time_zone_is_what_holds_anyway() -> None:
    assert read("SET 'table.local-time-zone' = 'UTC'; SET 'table.exec.state.ttl' = '0 s';")[1] == []
