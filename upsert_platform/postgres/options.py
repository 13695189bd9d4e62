"""Options of a table with ``'connector' = 'postgres'``, by the names of Flink's JDBC connector where it has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BeforeValidator, SecretStr, field_validator

from upsert_platform.options import Boolean, Duration, Settings, option
from upsert_platform.postgres.names import Name, parse_name

CONNECTION_PARAMETERS: Final = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "application_name",
    "target_session_attrs",
    "currentSchema",
)
"""Parameters that a URL may have: those of libpq, and the schema of tables as the JDBC driver names it."""
WITHOUT_EFFECT: Final = {
    "driver": "no JDBC driver is used",
    "sink.buffer-flush.interval": "a write ends with one transaction; nothing is flushed by time",
}
"""Options of Flink's JDBC connector that are accepted with a warning, to the reason."""
_DEFAULT_PORT: Final = 5432


def _lowered(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


class PostgresSettings(Settings):
    """Options of a PostgreSQL table declared in SQL or YAML."""

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
    max_retries: int = option(
        "sink.max-retries",
        3,
        origin="flink",
        description="How often the transaction of a write is tried again after a deadlock or a serialization failure.",
        ge=0,
    )
    parallelism: int | None = option(
        "sink.parallelism",
        None,
        origin="flink",
        description="Tasks that stage rows; as many as the changes have partitions by default.",
        ge=1,
    )
    auto_create: Boolean = option(
        "auto.create",
        False,
        origin="platform",
        description="Creates the table when it is missing, and adds declared columns that it lacks.",
    )
    on_error: Annotated[Literal["quarantine", "fail"], BeforeValidator(_lowered)] = option(
        "on-error",
        "quarantine",
        origin="platform",
        description="`quarantine` sets rows that PostgreSQL will not take aside with SQLSTATE, `fail` stops.",
    )
    max_refused_rows: int | None = option(
        "max.refused.rows",
        10_000,
        origin="platform",
        description="Refused rows in one write above which it fails, because the declaration is wrong rather than some"
        " rows.",
        ge=1,
    )
    control_table: str = option(
        "control.table",
        "upsert_platform_control",
        origin="platform",
        description="Table in the schema of the written table that keeps applied batch, lease and last verdict.",
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
        for host in parts.netloc.split(","):
            port = host.rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
            if port and not port.isdigit():
                raise ValueError(f"has the port '{port}', which is no number")
        unknown = [name for name, _ in parse_qsl(parts.query) if name not in CONNECTION_PARAMETERS]
        if unknown:
            raise ValueError(f"has the parameter '{unknown[0]}'; known are {', '.join(CONNECTION_PARAMETERS)}")
        return text

    @field_validator("table_name")
    @classmethod
    def _table_is_named(cls, value: str) -> str:
        if value:
            parse_name(value)
        return value

    @field_validator("connect_timeout")
    @classmethod
    def _duration_is_positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("takes a duration above zero")
        return value

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
        found = []
        for item in urlsplit(self.url).netloc.split(","):
            has_port = ":" in item.rpartition("]")[2]
            host, port = item.rsplit(":", 1) if has_port else (item, "")
            found.append((host.strip("[]"), int(port or _DEFAULT_PORT)))
        return tuple(found)

    @property
    def address(self) -> str:
        """The URL without parameters."""
        return self.url.partition("?")[0]

    def place(self, declared: str) -> Name:
        """Schema and name of the table.

        Args:
            declared: name of the declared table.
        """
        schema, name = parse_name(self.table_name) if self.table_name else ("", declared)
        return Name(schema or self.parameters.get("currentSchema", "public"), name)
