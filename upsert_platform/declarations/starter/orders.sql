-- A first project: a topic of orders, and a table that holds those which are still open.
--
-- A project is a folder; every .sql file in it is read. After a change, 'upsert-platform validate' says what is wrong,
-- with file and line, and connects to nothing. 'upsert-platform options tablestore' lists the options of a connector.

-- What is read. A record is the last value of its key; a record with a null value (a tombstone) deletes its key.
CREATE TABLE orders (
  order_id BIGINT,
  customer STRING,
  amount DECIMAL(12, 2),
  state STRING,
  changed_at TIMESTAMP(3),
  -- These columns are the record's key. The platform relies on it, as Flink does: hence NOT ENFORCED.
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'orders',
  -- ${NAME} is the environment variable NAME, else an entry of a variables.yaml in this folder, else what
  -- 'upsert-platform local up' has set for the servers of this machine.
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  -- A broker with a login: 'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'PLAIN' and
  -- 'properties.sasl.jaas.config' = '${KAFKA_JAAS_CONFIG}'. Keep secrets in variables, never in this file.
  'key.format' = 'json',
  'value.format' = 'json'
);

-- What is written: its row per key is the last value of the topic, always.
CREATE TABLE open_orders (
  order_id BIGINT,
  customer STRING,
  amount DECIMAL(12, 2),
  changed_at TIMESTAMP(3),
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore',
  'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}',
  -- Makes the table when a run first writes it; without this the table has to be there.
  'auto.create' = 'true'
);

-- What connects them. An order that is closed no longer meets the WHERE, so its row is deleted.
INSERT INTO open_orders
SELECT order_id, customer, amount, changed_at
FROM orders
WHERE state <> 'closed';
