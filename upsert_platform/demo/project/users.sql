-- A topic of users, kept equal in Tablestore (to serve) and MaxCompute (to analyse).

CREATE TABLE users (
  user_id BIGINT,
  name STRING,
  region STRING,
  balance DECIMAL(12, 2),
  updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'users',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TABLE users_serving (
  user_id BIGINT,
  name STRING,
  region STRING,
  balance DECIMAL(12, 2),
  updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore',
  'table.name' = 'users',
  'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}',
  'auto.create' = 'true'
);

CREATE TABLE users_warehouse (
  user_id BIGINT,
  name STRING,
  region STRING,
  balance DECIMAL(12, 2),
  updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'maxcompute',
  'table.name' = 'users',
  'odps.end.point' = '${UPSERT_MAXCOMPUTE_ENDPOINT}',
  'odps.project.name' = '${UPSERT_MAXCOMPUTE_PROJECT}',
  'odps.access.id' = '${UPSERT_MAXCOMPUTE_ACCESS_ID}',
  'odps.access.key' = '${UPSERT_MAXCOMPUTE_ACCESS_KEY}',
  'sink.operation' = 'upsert',
  'upsert.write.bucket.num' = '4',
  'auto.create' = 'true'
);

INSERT INTO users_serving SELECT * FROM users;

INSERT INTO users_warehouse
SELECT user_id, name, region, balance, updated_at FROM users WHERE region <> 'test';
