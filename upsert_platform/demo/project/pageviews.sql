-- Page views, each a record of its own, counted per region into an upsert topic; that topic lands in Tablestore. Users
-- with the page that they looked at last land in MaxCompute. Both are queries that are kept up to date.

CREATE TABLE pageviews (
  user_id BIGINT,
  page_id BIGINT,
  viewtime TIMESTAMP(3),
  user_region STRING,
  WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'pageviews',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  'format' = 'json'
);

CREATE TABLE pageviews_per_region (
  user_region STRING,
  pv BIGINT,
  uv BIGINT,
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'pageviews_per_region',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  'key.format' = 'json',
  'value.format' = 'json',
  'auto.create' = 'true'
);

INSERT INTO pageviews_per_region
SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM pageviews GROUP BY user_region;

-- The same topic, read: a table is either written or read.
CREATE TABLE regions (
  user_region STRING,
  pv BIGINT,
  uv BIGINT,
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'pageviews_per_region',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TABLE regions_serving (
  user_region STRING,
  pv BIGINT,
  uv BIGINT,
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'tablestore',
  'table.name' = 'regions',
  'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}',
  'auto.create' = 'true'
);

INSERT INTO regions_serving SELECT * FROM regions;

CREATE TABLE last_views (
  user_id BIGINT,
  name STRING,
  page_id BIGINT,
  viewtime TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'maxcompute',
  'table.name' = 'last_views',
  'odps.end.point' = '${UPSERT_MAXCOMPUTE_ENDPOINT}',
  'odps.project.name' = '${UPSERT_MAXCOMPUTE_PROJECT}',
  'odps.access.id' = '${UPSERT_MAXCOMPUTE_ACCESS_ID}',
  'odps.access.key' = '${UPSERT_MAXCOMPUTE_ACCESS_KEY}',
  'sink.operation' = 'upsert',
  'upsert.write.bucket.num' = '4',
  'auto.create' = 'true'
);

CREATE VIEW last_view_per_user AS
SELECT user_id, page_id, viewtime
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY viewtime DESC) AS rn FROM pageviews
) AS numbered
WHERE rn = 1;

INSERT INTO last_views
SELECT u.user_id, u.name, v.page_id, v.viewtime
FROM users AS u
JOIN last_view_per_user AS v ON u.user_id = v.user_id;
