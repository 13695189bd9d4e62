"""Options of tables with ``'connector' = 'postgres'`` or ``'hologres'``, by the names of Flink's connectors."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BeforeValidator, SecretStr, field_validator

from upsert_platform.core.options import Boolean, Duration, option
from upsert_platform.postgres.names import Name, parse_name
from upsert_platform.writing.options import WrittenSettings, lowered

_TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey")
CONNECTION_PARAMETERS: Final = (*_TLS, "application_name", "target_session_attrs", "currentSchema")
"""Parameters that a URL may have: those of libpq, and the schema of tables as the JDBC driver names it."""
WITHOUT_EFFECT: Final = {
    "driver": "no JDBC driver is used",
    "sink.buffer-flush.interval": "a write ends with one transaction; nothing is flushed by time",
}
"""Options of Flink's JDBC connector that are accepted with a warning, to the reason."""
_ONE_TRANSACTION: Final = "rows are copied and merged by one transaction per batch"
HOLOGRES_WITHOUT_EFFECT: Final = {
    **dict.fromkeys(("sdkmode", "sink.write-mode", "bulkload", "jdbcwritebatchsize", "sink.insert.batch-size"),
                    _ONE_TRANSACTION),
    **dict.fromkeys(("jdbcwriteflushinterval", "sink.insert.flush-interval-ms"), _ONE_TRANSACTION),
    **dict.fromkeys(("connectionsize", "connection.pool.size", "connectionpoolname", "connection.pool.name"),
                    "each task has one connection"),
}  # fmt: skip
"""Options of Hologres' connector that are accepted with a warning, to the reason."""
_DEFAULT_PORT: Final = 5432


class _LoginSettings(WrittenSettings):
    """Options that both connectors have."""

    username: str = option("username", origin="flink", description="User of the database.", min_length=1)
    password: SecretStr = option("password", SecretStr(""), origin="flink", description="Its password.")
    connect_timeout: Duration = option(
        "connection.max-retry-timeout",
        timedelta(seconds=30),
        origin="flink",
        description="Longest wait for a connection.",
    )
    flush_rows: int = option(
        "sink.buffer-flush.max-rows",
        100_000,
        origin="flink",
        description="Rows of one COPY. A row that the server refuses is looked for within them.",
        ge=1,
    )
    auto_create: Boolean = option(
        "auto.create",
        False,
        origin="platform",
        description="Creates the table when it is missing, and adds declared columns that it lacks.",
    )

    @field_validator("connect_timeout")
    @classmethod
    def _duration_is_positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("takes a duration above zero")
        return value


class PostgresSettings(_LoginSettings):
    """Options of a PostgreSQL table declared in SQL or YAML."""

    is_hologres: ClassVar[bool] = False
    connector: Literal["postgres"] = option(
        "connector", "postgres", origin="platform", description="Selects this connector."
    )
    url: str = option(
        "url",
        origin="flink",
        description="`jdbc:postgresql://host:port/database`, or the same without `jdbc:`; several hosts are joined by"
        " commas. Parameters: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `application_name`,"
        " `target_session_attrs`, as libpq has them, and `currentSchema`.",
    )
    table_name: str = option(
        "table-name",
        "",
        origin="flink",
        description="Table, or schema.table; parts with a point or a quote stand in double quotes. The declared name by"
        " default. Case counts.",
    )
    max_retries: int = option(
        "sink.max-retries",
        3,
        origin="flink",
        description="How often the transaction of a write is tried again after a deadlock or a serialization failure.",
        ge=0,
    )

    @field_validator("url")
    @classmethod
    def _url_is_an_address(cls, value: str) -> str:
        text = value.strip().removeprefix("jdbc:")
        parts = urlsplit(text)
        if parts.scheme not in ("postgresql", "postgres") or not parts.netloc or not parts.path.strip("/"):
            raise ValueError("takes an address such as jdbc:postgresql://host:5432/database")
        if "@" in parts.netloc:
            raise ValueError("takes no user or password; use 'username' and 'password'")
        for _, port in _hosts(text):
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
    def database(self) -> str:
        """Name of the database."""
        return unquote(urlsplit(self.url).path.strip("/"))

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """Hosts with their ports, in the order in which they are tried."""
        return tuple((host, int(port or _DEFAULT_PORT)) for host, port in _hosts(self.url))

    @property
    def address(self) -> str:
        """The URL without parameters."""
        return self.url.partition("?")[0]

    def place(self, declared: str) -> Name:
        """Schema and name of the table, of which `declared` is the declared name."""
        schema, name = parse_name(self.table_name) if self.table_name else ("", declared)
        return Name(schema or self.parameters.get("currentSchema", "public"), name)


def _hosts(url: str) -> list[tuple[str, str]]:
    found = []
    for item in urlsplit(url).netloc.split(","):
        host, port = item.rsplit(":", 1) if ":" in item.rpartition("]")[2] else (item, "")
        found.append((host.strip("[]"), port))
    return found


class HologresServer(PostgresSettings):
    """Options of a Hologres table, as those of its PostgreSQL protocol."""

    is_hologres: ClassVar[bool] = True


class HologresSettings(_LoginSettings):
    """Options of a Hologres table declared in SQL or YAML."""

    connector: Literal["hologres"] = option(
        "connector", "hologres", origin="platform", description="Selects this connector."
    )
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
