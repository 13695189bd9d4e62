"""Sentences of the options reference for what no settings model describes."""

from __future__ import annotations

from typing import Final

INTRODUCTION: Final = """\
# Options

Every option of every connector and format, with its default and who documents it: Apache Flink (`flink`), the pages of
`upsert-kafka` by Alibaba Cloud, Volcengine and Tencent Cloud (`alibaba`, `volcengine`, `tencent`), the Tablestore sink
connector for Kafka (`tablestore`), Kafka Connect (`kafka-connect`), MaxCompute and its connector for Flink
(`maxcompute`), the clients of the schema registry (`confluent`), or this platform alone (`platform`). `upsert-platform
options <name>` prints a section in the terminal.

An option that is not listed is an error, with the nearest name suggested. **(no effect)** marks options that are
accepted with a warning because something else does their work here; **(refused)** marks options that are an error
because ignoring them would change results.

Values: a **duration** is `500 ms`, `1 s`, `10 min` or `1 h` (a bare number is milliseconds); a **size** is `64 kb`,
`16 mb` or `1 gb`, counted by 1024 (a bare number is bytes). Every value can be written as `${NAME}`, see *Every table,
and the environment*."""

CONNECTORS: Final = {
    "upsert-kafka": "A topic whose records are the last value of their key; a null value deletes the key. The table has"
    " a primary key, which is the record's key.",
    "kafka": "A topic in which every record counts for itself, change data capture formats included.",
    "kafka-changes": "A topic of changes, each with the row before and after, as Flink CDC's pipelines write it: it is"
    " what `sink` of a pipeline calls `type: kafka`. Options of `upsert-kafka` that are not named here are the same."
    " Written by a kept-up query, which knows what rows were before; a batch gives one change per key. Options of"
    " formats are written with their format alone in front: `debezium-json.…`.",
    "tablestore": "A wide-column table of Tablestore, kept equal to what its insert selects. The primary key has one to"
    " four columns.",
    "maxcompute": "A table of MaxCompute: a Delta table with a primary key under `sink.operation` = `upsert`, a plain"
    " one that rows are appended to under `insert`.",
    "faker": "Rows made by expressions, to try things with: each run makes the rows of one second, or all of"
    " `number-of-rows`. A row is made once and kept in the changelog, its computed columns too.",
    "datagen": "Random rows and sequences, to try things with, as `faker` makes them.",
    "mysql-cdc": "A table of a MySQL or MariaDB server: a snapshot by ranges of the primary key, then the server's log."
    " See [mysql.md](mysql.md).",
}
MYSQL_SOURCE: Final = (
    "`source` of a pipeline with `type: mysql`. The server is asked for the tables that `tables` names, and each of"
    " them becomes a table of connector `mysql-cdc`, named `mysql.<schema>.<table>`. See [mysql.md](mysql.md)."
)
TOPIC_MAPPING: Final = (
    "Of a pipeline's sink: topics of tables, `pattern:topic;pattern:topic`. A table that no pattern matches has a topic"
    " of its own name."
)
FORMAT: Final = (
    "Used as `'key.format' = '{name}'` or `'value.format' = '{name}'`. Write each option with its side in front:"
    " `key.{name}.…` or `value.{name}.…`. Beside `'format' = '{name}'` the name alone is the value's."
)
CHANGE_FORMAT: Final = (
    "Used as `'value.format' = '{name}'` on `kafka` tables: its messages carry the kind of change, so no upsert topic"
    " can have it. Write each option as `value.{name}.…`, or alone beside `'format' = '{name}'`."
)
CLIENT_PROPERTIES: Final = (
    "Options `properties.<name>` of Kafka tables. Names are those of Java clients, or librdkafka's own, which is the"
    " client that is used. Where nothing is said, the value is passed on as it is, and the default is librdkafka's."
)
PROPERTIES: Final = {
    "group.id": "Positions are published to this group after each batch, for lag monitors, and never read back; start"
    " and end modes `group-offsets` read what others have committed to it.",
    "isolation.level": "`read_committed` unless given.",
    "security.protocol": "In any case.",
    "acks": "`-1` is written `all`.",
    "allow.auto.create.topics": "Reading never creates a topic; `false` keeps destinations from creating theirs, like"
    " `auto.create` = `false`.",
    "ssl.endpoint.identification.algorithm": "An empty value becomes `none`.",
    "ssl.truststore.certificates": "Certificates in PEM form.",
    "ssl.keystore.certificate.chain": "Certificates in PEM form.",
    "ssl.keystore.key": "A key in PEM form. Secret: never shown.",
    "sasl.password": "Secret: never shown.",
    "ssl.key.password": "Secret: never shown.",
    "ssl.key.pem": "Secret: never shown.",
    "sasl.oauthbearer.client.secret": "Secret: never shown.",
    "sasl.oauthbearer.config": "Secret: never shown.",
}
KERBEROS: Final = "A job's Kerberos login, also without `properties.`; needs a client that was built with Kerberos."
TRANSLATED: Final = {
    "sasl.jaas.config": (
        "sasl.username, sasl.password, sasl.kerberos.*, sasl.oauthbearer.*",
        "both",
        "Login modules Plain, Scram, Krb5 and OAuthBearer. Secret: never shown.",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        "",
        "both",
        "Java's DefaultJwtRetriever or ClientCredentialsJwtRetriever, which get a token as the client does.",
    ),
    "partitioner": (
        "",
        "writing",
        "Records are partitioned by Kafka's murmur2 of the key, as Java producers do by default; remove it.",
    ),
    "buffer.memory": ("queue.buffering.max.kbytes", "writing", "Bytes become kilobytes."),
    "ssl.truststore.location": (
        "ssl.ca.location, or ssl.ca.pem",
        "both",
        "A PEM file, or a JKS or PKCS#12 store, which the JDK's keytool opens when a client is created.",
    ),
    "ssl.truststore.type": ("", "both", "`PEM`, `JKS` (default) or `PKCS12`."),
    "ssl.truststore.password": ("", "both", "Of a JKS or PKCS#12 store. Secret: never shown."),
    "ssl.keystore.location": (
        "ssl.certificate.location and ssl.key.location, or ssl.keystore.location",
        "both",
        "A PEM file with key and certificates, or a PKCS#12 or JKS store; the JDK's keytool opens the latter.",
    ),
    "ssl.keystore.type": ("", "both", "`PEM`, `JKS` (default) or `PKCS12`."),
    "ssl.keystore.password": ("ssl.keystore.password", "both", "Of a JKS or PKCS#12 store. Secret: never shown."),
    "commit.offsets.on.checkpoint": (
        "",
        "reading",
        "`true`, or `false` to publish no positions to the group. `true` needs `properties.group.id`.",
    ),
    "security.kerberos.login.principal": ("sasl.kerberos.principal", "both", KERBEROS),
    "security.kerberos.login.keytab": ("sasl.kerberos.keytab", "both", KERBEROS),
    "security.kerberos.login.use-ticket-cache": ("sasl.kerberos.min.time.before.relogin", "both", KERBEROS),
    "security.kerberos.login.contexts": ("", "both", f"{KERBEROS} Has to name `KafkaClient`."),
    "security.kerberos.login.conf": (
        "",
        "both",
        "The `krb5.conf` to use; one for all tables of a project, since a process has one (`KRB5_CONFIG`).",
    ),
    "client.id.prefix": ("", "both", "Start of the client ids; the group, or `upsert-platform`, unless given."),
}
KAFKA_CONNECT: Final = (
    "A `.properties` or `.json` file of a project folder whose `connector.class` is `TableStoreSinkConnector`: per"
    " Tablestore table it declares a source table that keeps every record of its topics, a table that is written by the"
    " connector's rules, and the insert between them. Defaults are the connector's own."
)
CONNECT: Final = {
    "name": ("(required)", "Name of the connector; the declared tables are named after it."),
    "connector.class": ("(required)", "A class name that ends with `TableStoreSinkConnector`."),
    "tasks.max": ("", "Writing tasks; becomes `sink.parallelism` of the table."),
    "consumer.thread.concurrency": (
        "",
        "Concurrency of the managed connector: 1, 2, 3, 6 or 12 writing tasks, where `tasks.max` is not given. Without"
        " either it is 6.",
    ),
    "failure.handling.policy": (
        "",
        "Failure handling policy of the console: `continue` keeps records that fail aside, `stop` fails the run and"
        " writes nothing of the record's partition from the first one on. It sets `errors.tolerance` and"
        " `runtime.error.tolerance`.",
    ),
    "transforms": ("", "Aliases of transforms, joined by commas, in the order in which they are applied."),
    "predicates": ("", "Aliases of predicates, joined by commas."),
    "tablestore.mode": ("normal", "`normal` writes wide-column tables, `timeseries` time-series tables."),
    "tablestore.auth.mode": ("", "`aksk`, or `sts` with `tablestore.sts.token`, with a role (`account.id`,"
    " `role.name`), or with the environment's credentials; `aksk` where access keys alone are given."),
    "delete.mode": ("none", "What an empty value deletes: `none`, `row`, `column` or `row_and_column`; needs"
    " `primarykey.mode` = `record_key`."),
    "primarykey.mode": ("kafka", "`kafka` (topic_partition and offset), `record_key`, `record_value`, or `search` (md5,"
    " topic, partition and offset, with the time as a column)."),
}  # fmt: skip
CONNECT_PER_TABLE: Final = {
    "transforms.<alias>.type": "Class of a transform of Kafka Connect: `Cast`, `ExtractField`, `Flatten`, `HoistField`,"
    " `InsertField`, `MaskField`, `ReplaceField` and `TimestampConverter` with `$Key` or `$Value`, `Filter`,"
    " `RegexRouter`, `ValueToKey`. Its own options follow as `transforms.<alias>.*`.",
    "transforms.<alias>.predicate": "Alias of the predicate that says which records the transform concerns.",
    "transforms.<alias>.negate": "`true`: it concerns the records for which the predicate does not hold.",
    "predicates.<alias>.type": "Class of a predicate: `TopicNameMatches` (`pattern`), `HasHeaderKey` (`name`),"
    " `RecordIsTombstone`.",
    "tablestore.<table>.primarykey.name": "Primary key columns, joined by commas.",
    "tablestore.<table>.primarykey.type": "Their types, in the same order: `string`, `integer`, `binary` or"
    " `auto_increment`.",
    "tablestore.<table>.columns.whitelist.name": "Fields to keep, joined by commas; all fields without it.",
    "tablestore.<table>.columns.whitelist.type": "Their types: `string`, `integer`, `double`, `boolean` or `binary`.",
    "tablestore.<table>.search.timestamp.type": "Of mode `search`: `kafka`, the record's time, or `local`.",
    "tablestore.timeseries.<table>.measurement": "Field with the metric's name, or `<topic>`.",
    "tablestore.timeseries.<table>.dataSource": "Field with the data source.",
    "tablestore.timeseries.<table>.tags": "Fields that are tags, joined by commas.",
    "tablestore.timeseries.<table>.time": "Field with the time, a whole number.",
    "tablestore.timeseries.<table>.time.unit": "`SECONDS`, `MILLISECONDS`, `MICROSECONDS` or `NANOSECONDS`.",
    "tablestore.timeseries.<table>.field.name": "Data fields with a type of their own, joined by commas.",
    "tablestore.timeseries.<table>.field.type": "Their types: `double`, `integer`, `string`, `binary` or `boolean`.",
    "tablestore.timeseries.mapAll": "`true` (default) takes all other fields as data fields, numbers as doubles.",
    "tablestore.timeseries.toLowerCase": "`true` (default) writes names of data fields in lower case.",
    "tablestore.timeseries.rowsPerBatch": "Rows per request, 1 to 200 (default).",
    "consumer.override.*": "Client property of the source table; `bootstrap.servers` and `auto.offset.reset` included.",
    "producer.override.*": "Client property for the topics of failed records; without any, the consumer's login.",
}
TRUNCATE_TIMESTAMPS: Final = (
    "Option of any source table: `true` allows TIMESTAMP(7) to TIMESTAMP(9), whose last digits are cut, because changes"
    " are kept in microseconds."
)
TIME_ZONE: Final = "UTC is accepted; any other zone is an error, because times are computed in UTC."
PLATFORM: Final = (
    "`${NAME}` in a declaration is replaced by the environment variable of that name (`${a.b-c}` by `A_B_C`), else by"
    " the entry of `variables.yaml` beside the declarations, else by what `upsert-platform local up` wrote. Below: the"
    " options that every table has (the last of them every source table), the environment variables that the platform"
    " reads, and SET statements."
)
CONTRACTS: Final = {
    "contract.NAME": "Columns, with or without types, that the consumer NAME relies on: `id, amount DECIMAL(10, 2)`."
    " `validate`, `plan` and runs refuse a declaration without one of them.",
    "contract.NAME.key": "Primary key that the consumer NAME relies on.",
}
ENVIRONMENT: Final = {
    "UPSERT_PLATFORM_PROJECT": ("the demo", "Folder of declarations."),
    "UPSERT_PLATFORM_LAKE_OPTIONS": ("", "A file of lines `name=value`: storage options of delta-rs (endpoint, region,"
    " credentials) for a lake behind a URI. The driver reads it, and gives the options to its tasks."),
    "UPSERT_PLATFORM_TRANSLATOR": (
        "",
        "`module:Name` of a translator, which names and describes assets; see declaring.md.",
    ),
    "UPSERT_PLATFORM_AUTOMATION": ("sensor", "What starts runs by itself: `sensor`, or `conditions` on data versions."),
    "UPSERT_PLATFORM_ALERT_WEBHOOK": ("", "URL to which alerts are posted as JSON: runs that failed, checks that"
    " did not pass."),
    "UPSERT_PLATFORM_HOME": (".upsert_platform", "Root of the lake, a folder or a URI; local servers keep their data"
    " below it, in `local`."),
    "UPSERT_SPARK_LOCAL_ROWS": (
        "0",
        "Up to so many rows the process of a run does the work, without Spark, where neither the Spark resource nor the"
        " component says so (`local_rows`). 0: every row goes through Spark's workers.",
    ),
    "UPSERT_STREAM_LOCAL_ROWS": (
        "250000",
        "Up to so many rows of a batch continuous mode does the work in its own process, where neither `--local-rows`"
        " nor the configuration of job `stream` says so.",
    ),
    "UPSERT_PLATFORM_CACHE": ("~/.cache/upsert_platform", "Where jars are kept once they were fetched."),
    "UPSERT_PLATFORM_IVY_SETTINGS": ("", "Ivy settings file with your own repository, to fetch jars from."),
    "UPSERT_KAFKA_BOOTSTRAP_SERVERS": ("", "Brokers of Kafka Connect configurations that name none."),
    "JAVA_HOME": ("", "Java 17 or newer, where `java` on PATH is not."),
    "DAGSTER_HOME": ("", "Dagster's instance; `upsert-platform ui` and `demo` use `dagster` below the home unless it is"
    " set."),
}  # fmt: skip
