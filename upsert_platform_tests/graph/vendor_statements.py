"""Statements of the vendors' documents, as they stand there; white space that was lost and one misspelling are mended.

``{...}`` stands for what a user fills in: addresses, credentials, names of topics and tables.
"""

from __future__ import annotations

from typing import Final

ODPS: Final = """'odps.access.id'='{odps_id}', 'odps.access.key'='{odps_key}',
  'odps.end.point'='{odps}', 'odps.project.name'='{project}'"""
PAGEVIEWS: Final = """
CREATE TABLE pageviews (
  user_id BIGINT,
  page_id BIGINT,
  viewtime TIMESTAMP,
  user_region STRING,
  WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '{topic}-pageviews',
  'properties.bootstrap.servers' = '{brokers}',
  'format' = 'json'
);
"""
PAGEVIEWS_PER_REGION: Final = """
CREATE TABLE pageviews_per_region(
user_region STRING,
pv BIGINT,
uv BIGINT,
PRIMARY KEY(user_region) NOT ENFORCED
)WITH(
'connector'='upsert-kafka',
'topic'='{topic}-per-region',
'properties.bootstrap.servers'='{brokers}',
'key.format'='avro',
'value.format'='avro'
);
"""
COUNT_PAGEVIEWS: Final = """
INSERT INTO pageviews_per_region
SELECT
  user_region,
  COUNT(*),
  COUNT(DISTINCT user_id)
FROM pageviews
GROUP BY user_region;
"""
METADATA: Final = """
CREATE TABLE KafkaTable (
  `ts` TIMESTAMP(3) METADATA FROM 'timestamp',
  `user_id` BIGINT,
  `item_id` BIGINT,
  `behavior` STRING,
  PRIMARY KEY (`user_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = '{topic}-behavior', 'properties.bootstrap.servers' = '{brokers}',

  'key.format' = 'json',
  'key.json.ignore-parse-errors' = 'true',

  'value.format' = 'json',
  'value.json.fail-on-missing-field' = 'false',
  'value.fields-include' = 'EXCEPT_KEY'
)
"""
COPY: Final = """
CREATE TABLE `kafka_json_source_table` (
  `id` INT,
  `name` STRING
) WITH (
  'connector' = 'kafka',
  'topic' = '{topic}-Data-Input',
  'scan.startup.mode' = 'latest-offset', -- latest-offset / earliest-offset / specific-offsets / ...
  'properties.bootstrap.servers' = '{brokers}',
  'properties.group.id' = 'testGroup',
  'format' = 'json',
  'json.fail-on-missing-field' = 'false',
  'json.ignore-parse-errors' = 'true'
);

CREATE TABLE kafka_upsert_sink_table (
  id INT,
  name STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = '{topic}-copy',
  'properties.bootstrap.servers' = '{brokers}',
  'key.format' = 'json',
  'value.format' = 'json'
);

INSERT INTO kafka_upsert_sink_table
SELECT * FROM kafka_json_source_table;
"""
SASL_PLAIN: Final = """
CREATE TABLE `YourTable` (
  id INT, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-sasl', 'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = '{brokers}',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ckafka-x#u" password="p";',
  'properties.security.protocol' = 'SASL_PLAINTEXT',
  'properties.sasl.mechanism' = 'PLAIN'
);
"""  # noqa: E501 - a JAAS text is one line
VALUES: Final = f"""
CREATE TABLE mf_flink (
  id BIGINT,
  name STRING,
  age INT,
  status BOOLEAN,
  PRIMARY KEY(id) NOT ENFORCED
) WITH (
  'connector' = 'maxcompute',
  'table.name' = '{{table}}_tt',
  'sink.operation' = 'upsert',
  {ODPS}
);
CREATE TABLE mf_flink_part (
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
  'table.name' = '{{table}}_tt_part',
  'sink.operation' = 'upsert',
  {ODPS}
);
Insert into mf_flink values (1,'Danny',27, false);
Insert into mf_flink values (1,'Danny',28, false);
Insert into mf_flink_part values (1,'Danny',27, false, '01','01');
Insert into mf_flink_part values (1,'Danny',30, false, '01','01');
"""
GENERATED: Final = f"""
CREATE TEMPORARY TABLE fake_src_table
(
    c1 int,
    c2 VARCHAR,
    gt as CURRENT_TIMESTAMP
) with (
  'connector' = 'faker',
  'fields.c2.expression' = '#{{{{superhero.name}}}}',
  'rows-per-second' = '100',
  'fields.c1.expression' = '#{{{{number.numberBetween ''0'',''1000''}}}}'
);
CREATE TEMPORARY TABLE test_c_d_g
(
    c1 int,
    c2 VARCHAR,
    gt TIMESTAMP,
    ds varchar,
    PRIMARY KEY(c1) NOT ENFORCED
 ) PARTITIONED BY(ds)
 WITH (
    'connector' = 'maxcompute',
    'table.name' = '{{table}}_upsert',
    'sink.operation' = 'upsert',
    {ODPS},
    'upsert.write.bucket.num'='64'
);
insert into test_c_d_g
select  c1 as c1,
        c2 as c2,
        gt as gt,
        date_format(gt, 'yyyyMMddHH') as ds
from    fake_src_table;
"""
FILES: Final = {
    "pageviews.sql": PAGEVIEWS_PER_REGION + PAGEVIEWS + COUNT_PAGEVIEWS,
    "copy.sql": COPY,
    "values.sql": VALUES,
    "generated.sql": GENERATED,
}
"""What runs together; the other statements only declare."""
ON_MAXCOMPUTE: Final = (
    """CREATE TABLE {table}_tt ( id BIGINT not null, name STRING, age INT, status BOOLEAN, primary key (id) )
    tblproperties ("transactional"="true", "write.bucket.num" = "64", "acid.data.retain.hours"="12") ;""",
    """CREATE TABLE {table}_tt_part ( id BIGINT not null, name STRING, age INT, status BOOLEAN, primary key (id) )
    partitioned by (dd string, hh string)
    tblproperties ("transactional"="true", "write.bucket.num" = "64", "acid.data.retain.hours"="12") ;""",
    """create table {table}_upsert ( c1 int not null, c2 string, gt timestamp, primary key (c1) )
    partitioned by (ds string)
    tblproperties ("transactional"="true", "write.bucket.num" = "64", "acid.data.retain.hours"="12") ;""",
)
"""What the documents run on MaxCompute itself."""
NOT_HERE: Final = {
    "set odps.sql.type.system.odps2=true;": "SET 'odps.sql.type.system.odps2' has no effect: this is a session flag",
    "drop table mf_flink_upsert;": "DROP is not supported: the platform drops nothing",
    "select * from mf_flink_tt;": "SELECT is not supported: a query needs a target",
    ON_MAXCOMPUTE[0].format(table="mf_flink"): "this is DDL of MaxCompute itself",
}
"""Statements for MaxCompute, given to the platform: what it says of each."""
