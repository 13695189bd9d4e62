"""Options of tables with ``'connector' = 'postgres'`` or ``'hologres'``, by the names of Flink's connectors."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BeforeValidator, SecretStr, field_validator

from upsert_platform.core.options import Boolean, PositiveDuration, option
from upsert_platform.postgres.sql import Name, parse_name
from upsert_platform.writing.options import WrittenSettings, lowered, selecting

_SCHEMA: Final = "currentSchema"
CONNECTION_PARAMETERS: Final = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "target_session_attrs", _SCHEMA,
)  # fmt: skip
"""Parameters that a URL may have: those of libpq, and the schema of tables as the JDBC driver names it."""
_PAGES: Final = "tasks read ranges of the table's pages"
_NO_CACHE: Final = "each lookup asks the server"
WITHOUT_EFFECT: Final = {
    "driver": "no JDBC driver is used",
    "sink.buffer-flush.interval": "a write ends with one transaction; nothing is flushed by time",
    **{f"scan.partition.{name}": _PAGES for name in ("column", "num", "lower-bound", "upper-bound")},
    **dict.fromkeys(("scan.fetch-size", "scan.auto-commit"), "rows are read by COPY"),
    **dict.fromkeys(("lookup.cache", "lookup.cache.max-rows", "lookup.cache.ttl"), _NO_CACHE),
    **{f"lookup.partial-cache.{name}": _NO_CACHE
       for name in ("max-rows", "expire-after-write", "expire-after-access", "cache-missing-key")},
}  # fmt: skip
"""Options of Flink's JDBC connector that are accepted with a warning, to the reason."""
_ONE_TRANSACTION: Final = "rows are copied and merged by one transaction per batch"
HOLOGRES_WITHOUT_EFFECT: Final = {
    **dict.fromkeys(("sdkmode", "sink.write-mode", "bulkload", "jdbcwritebatchsize", "sink.insert.batch-size",
                     "jdbcwriteflushinterval", "sink.insert.flush-interval-ms"), _ONE_TRANSACTION),
    **dict.fromkeys(("connectionsize", "connection.pool.size", "connectionpoolname", "connection.pool.name"),
                    "each task has one connection"),
}  # fmt: skip
"""Options of Hologres' connector that are accepted with a warning, to the reason."""


class _LoginSettings(WrittenSettings):
    """Options that both connectors have."""

    username: str = option("username", origin="flink", description="User of the database.", min_length=1)
    password: SecretStr = option("password", SecretStr(""), origin="flink", description="Its password.")
    connect_timeout: PositiveDuration = option(
        "connection.max-retry-timeout", timedelta(seconds=30), origin="flink",
        description="Longest wait for a connection.",
    )  # fmt: skip
    flush_rows: int = option(
        "sink.buffer-flush.max-rows", 100_000, origin="flink", ge=1,
        description="Rows of one COPY. A row that the server refuses is looked for within them.",
    )  # fmt: skip
    auto_create: Boolean = option(
        "auto.create", False, origin="platform",
        description="Creates the table when it is missing, and adds declared columns that it lacks.",
    )  # fmt: skip
    snapshot_interval: PositiveDuration | None = option(
        "scan.snapshot.interval", None, origin="platform",
        description="Of a table that is read: how old its snapshot may be before a run takes a new one. Without it the"
        " table is read once, and again when job `rebuild` names it.",
    )  # fmt: skip


class PostgresSettings(_LoginSettings):
    """Options of a PostgreSQL table declared in SQL or YAML."""

    is_hologres: ClassVar[bool] = False
    connector: Literal["postgres"] = selecting("postgres")
    url: str = option(
        "url", origin="flink",
        description="`jdbc:postgresql://host:port/database`, or the same without `jdbc:`; several hosts are joined by"
        " commas. Parameters: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `application_name`,"
        " `target_session_attrs`, as libpq has them, and `currentSchema`.",
    )  # fmt: skip
    table_name: str = option(
        "table-name", "", origin="flink",
        description="Table, or schema.table; parts with a point or a quote stand in double quotes. The declared name by"
        " default. Case counts.",
    )  # fmt: skip
    max_retries: int = option(
        "sink.max-retries", 3, origin="flink", ge=0,
        description="How often the transaction of a write is tried again after a deadlock or a serialization failure.",
    )  # fmt: skip

    @field_validator("url")
    @classmethod
    def _url_is_an_address(cls, value: str) -> str:
        text = value.strip().removeprefix("jdbc:")
        parts = urlsplit(text)
        if parts.scheme not in ("postgresql", "postgres") or not parts.netloc or not parts.path.strip("/"):
            raise ValueError("takes an address such as jdbc:postgresql://host:5432/database")
        if "@" in parts.netloc:
            raise ValueError("takes no user or password; use 'username' and 'password'")
        for place in parts.netloc.split(","):
            port = place.rpartition("]")[2].partition(":")[2]
            if port and not port.isdigit():
                raise ValueError(f"has the port '{port}', which is no number")
        unknown = [name for name, _ in parse_qsl(parts.query) if name not in CONNECTION_PARAMETERS]
        if unknown:
            raise ValueError(f"has the parameter '{unknown[0]}'; known are {', '.join(CONNECTION_PARAMETERS)}")
        return text

    @field_validator("table_name")
    @classmethod
    def _table_is_named(cls, value: str) -> str:
        return str(parse_name(value) and value) if value else value

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the URL."""
        return dict(parse_qsl(urlsplit(self.url).query))

    @property
    def libpq(self) -> dict[str, str]:
        """Host, database and user as libpq has them, with the parameters of the URL that are its own."""
        hosts, name = urlsplit(self.url).netloc, unquote(urlsplit(self.url).path.strip("/"))
        own = {name: value for name, value in self.parameters.items() if name != _SCHEMA}
        writes = {"target_session_attrs": "read-write"} if "," in hosts else {}
        return {"conninfo": f"postgresql://{hosts}", "dbname": name, "user": self.username, **writes, **own}

    @property
    def address(self) -> str:
        """The URL without parameters."""
        return self.url.partition("?")[0]

    def place(self, declared: str) -> Name:
        """Schema and name of the table, of which `declared` is the declared name."""
        schema, name = parse_name(self.table_name) if self.table_name else ("", declared)
        return Name(schema or self.parameters.get(_SCHEMA, "public"), name)


class HologresServer(PostgresSettings):
    """Options of a Hologres table, as those of its PostgreSQL protocol."""

    is_hologres: ClassVar[bool] = True


class HologresSettings(_LoginSettings):
    """Options of a Hologres table declared in SQL or YAML."""

    connector: Literal["hologres"] = selecting("hologres")
    endpoint: str = option("endpoint", origin="alibaba", description="host:port of the instance.", min_length=1)
    dbname: str = option(
        "dbname", origin="alibaba", min_length=1,
        description="Name of the database; `database@warehouse` names the virtual warehouse too.",
    )  # fmt: skip
    tablename: str = option(
        "tablename", "", origin="alibaba", description="Table, or schema.table. The declared name by default."
    )
    ssl_mode: Annotated[Literal["disable", "require", "verify-ca", "verify-full"], BeforeValidator(lowered)] = option(
        "connection.ssl.mode", "disable", origin="alibaba", description="TLS, by the modes of libpq."
    )
    ssl_root: str = option(
        "connection.ssl.root-cert.location", "", origin="alibaba", description="File with the certificate authority."
    )
    mutate_type: Annotated[Literal["insertorupdate", "insert_or_update"], BeforeValidator(lowered)] = option(
        "mutatetype", "insertorupdate", origin="alibaba", synonyms=("sink.on-conflict-action",),
        description="A row of a key that is there updates the declared columns; a table that ignored or replaced rows"
        " would not equal its insert.",
    )  # fmt: skip
    ignore_delete: Annotated[Literal["false"], BeforeValidator(lowered)] = option(
        "ignoredelete", "false", origin="alibaba", description="Deletes are applied."
    )
    retries: int = option(
        "jdbcretrycount", 10, origin="alibaba", synonyms=("retry-count",), ge=0,
        description="How often the transaction of a write is tried again after a conflict.",
    )  # fmt: skip

    def server(self) -> HologresServer:
        """These options by PostgreSQL's names."""
        tls = {"sslmode": self.ssl_mode, "application_name": "upsert-platform"}
        tls |= {"sslrootcert": self.ssl_root} if self.ssl_root else {}
        common = {name: getattr(self, name) for name in _LoginSettings.model_fields}
        url = f"postgresql://{self.endpoint}/{quote(self.dbname, safe='')}?{urlencode(tls)}"
        return HologresServer(url=url, table_name=self.tablename, max_retries=self.retries, **common)
