"""Options of a SQL table with ``'connector' = 'tablestore'``."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr, field_validator, model_validator

from upsert_platform.core.options import Boolean, MemorySize, PositiveDuration, option
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.credentials import Role
from upsert_platform.writing.options import WrittenSettings, lowered, selecting


class InsertMode(StrEnum):
    """Write mode: ``put`` replaces a row, ``update`` merges its columns into what is there."""

    PUT = "put"
    UPDATE = "update"


class DeleteMode(StrEnum):
    """The effect of an empty value: it deletes nothing, the row, the null columns, or both."""

    NONE = "none"
    ROW = "row"
    COLUMN = "column"
    ROW_AND_COLUMN = "row_and_column"

    @property
    def deletes_rows(self) -> bool:
        """Return whether a deleted key removes its row."""
        return self in (DeleteMode.ROW, DeleteMode.ROW_AND_COLUMN)

    @property
    def deletes_columns(self) -> bool:
        """Return whether a null removes its column when rows are merged."""
        return self in (DeleteMode.COLUMN, DeleteMode.ROW_AND_COLUMN)


class TablestoreSettings(WrittenSettings):
    """Options of a Tablestore table declared in SQL or YAML.

    Names with a dot are those of the open-source Tablestore sink connector where it has the option (specification
    section 1.2); values are accepted in any case and with blanks around them, as it does.
    """

    connector: Literal["tablestore"] = selecting("tablestore")
    table_name: str = option(
        "table.name", "", origin="platform", description="Name of the Tablestore table; the declared name by default."
    )
    endpoint: str = option(
        "tablestore.endpoint", origin="tablestore", description="http or https address of the instance."
    )
    instance_name: str = option(
        "tablestore.instance.name", origin="tablestore", description="Name of the instance.", min_length=1
    )
    auth_mode: Annotated[Literal["aksk", "sts"], BeforeValidator(lowered)] = option(
        "tablestore.auth.mode",
        "aksk",
        origin="tablestore",
        description="`aksk` signs with an access key; `sts` with a temporary one: with its token as given, of the role "
        "that is assumed, or, with nothing given, what the environment has (variables, OIDC, profile, role of the "
        "machine).",
    )
    access_key_id: SecretStr = option(
        "tablestore.access.key.id",
        SecretStr(""),
        origin="tablestore",
        description="Access key id; with a role, of the key that assumes it, by default the variable `ACCESS_ID`.",
    )
    access_key_secret: SecretStr = option(
        "tablestore.access.key.secret",
        SecretStr(""),
        origin="tablestore",
        description="Access key secret; with a role by default the variable `ACCESS_KEY`.",
    )
    sts_token: SecretStr | None = option(
        "tablestore.sts.token", None, origin="platform", description="Security token of a temporary access key."
    )
    account_id: str = option(
        "account.id", "", origin="tablestore", description="Account of the role that is assumed.", pattern=r"^\d*$"
    )
    role_name: str = option(
        "role.name", "", origin="tablestore", description="RAM role that is assumed; its credentials are kept fresh."
    )
    sts_endpoint: str = option(
        "sts.endpoint", "", origin="tablestore", description="Host of the STS API; that of the region by default."
    )
    client_timeout: int = option(
        "client.time.out.ms",
        3_600_000,
        origin="tablestore",
        description="Age in milliseconds after which a role is assumed anew, at the latest.",
        ge=1,
    )
    region: str | None = option(
        "region", None, origin="tablestore", description="Region id; when given, requests carry version 4 signatures."
    )
    auto_create: Boolean = option(
        "auto.create", False, origin="tablestore", description="Creates the table when it is missing."
    )
    insert_mode: Annotated[InsertMode, BeforeValidator(lowered)] = option(
        "insert.mode",
        InsertMode.PUT,
        origin="tablestore",
        description="`put` replaces the row, `update` keeps columns that the declaration does not name.",
    )
    delete_mode: Annotated[DeleteMode, BeforeValidator(lowered)] = option(
        "delete.mode",
        DeleteMode.ROW,
        origin="tablestore",
        description="What a deleted key and a null column delete: `none`, `row`, `column` or `row_and_column`.",
    )
    max_concurrency: int = option(
        "max.concurrency",
        10,
        origin="tablestore",
        description="Requests that a writing task has in flight.",
        ge=1,
        le=256,
    )
    flush_rows: int = option(
        "sink.buffer-flush.max-rows",
        limits.MAX_ROWS_PER_WRITE,
        origin="platform",
        description="Rows per request.",
        ge=1,
        le=limits.MAX_ROWS_PER_WRITE,
    )
    flush_bytes: MemorySize = option(
        "sink.buffer-flush.max-bytes",
        limits.MAX_BYTES_PER_WRITE,
        origin="platform",
        description="Bytes per request.",
        ge=1024,
        le=limits.MAX_BYTES_PER_WRITE,
    )
    request_timeout: PositiveDuration = option(
        "request.timeout",
        timedelta(seconds=10),
        origin="platform",
        description="Time for one request; never more than the margin before the end of the writer's lease.",
    )
    retry_deadline: PositiveDuration = option(
        "retry.deadline",
        timedelta(minutes=5),
        origin="platform",
        description="Time after which a row that is refused for a passing reason (throttling, a lost connection) "
        "fails the write.",
    )
    max_refused_rows: int | None = option(
        "max.refused.rows",
        10_000,
        origin="platform",
        description="Refused rows in one write above which it fails, because the declaration is wrong rather than "
        "some rows. Of a Kafka Connect configuration that tolerates errors: any number, unless given.",
        ge=1,
    )
    version_column: str | None = option(
        "version.column",
        None,
        origin="platform",
        description="Attribute column that keeps the version of a row; each change is then conditional on it, so a "
        "late writer cannot replace a newer row. It can bring back one that was deleted: that has no version. Costs a "
        "read capacity unit per row.",
    )
    time_to_live: int = option(
        "table.time-to-live",
        -1,
        origin="platform",
        description="Seconds after which data expires in a table that is created; -1 keeps it.",
    )
    max_versions: int = option(
        "table.max-versions", 1, origin="platform", description="Versions of a cell in a table that is created.", ge=1
    )
    reserved_read: int = option(
        "table.reserved-throughput.read",
        0,
        origin="platform",
        description="Reserved read capacity units of a table that is created.",
        ge=0,
        le=limits.MAX_CAPACITY_UNITS,
    )
    reserved_write: int = option(
        "table.reserved-throughput.write",
        0,
        origin="platform",
        description="Reserved write capacity units of a table that is created.",
        ge=0,
        le=limits.MAX_CAPACITY_UNITS,
    )

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_an_address(cls, value: str) -> str:
        parts = urlsplit(value.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("takes an address such as https://<instance>.<region>.ots.aliyuncs.com")
        if parts.username is not None or parts.password is not None:
            raise ValueError("takes no user name or password; use tablestore.access.key.id and .secret")
        return value.strip().rstrip("/")

    @field_validator("table_name", "control_table", "version_column")
    @classmethod
    def _name_is_allowed(cls, value: str | None) -> str | None:
        if value and not limits.is_valid_name(value):
            raise ValueError("takes a letter or '_', then letters, digits and '_', 255 characters at most")
        return value

    @field_validator("time_to_live")
    @classmethod
    def _time_to_live_is_long_enough(cls, value: int) -> int:
        if value != -1 and value < limits.MIN_TIME_TO_LIVE_SECONDS:
            raise ValueError(f"takes -1 or at least {limits.MIN_TIME_TO_LIVE_SECONDS} seconds")
        return value

    @model_validator(mode="after")
    def _credentials_fit_together(self) -> Self:
        keys = "'tablestore.access.key.id' and 'tablestore.access.key.secret'"
        has_id, has_secret = (
            bool(self.access_key_id.get_secret_value()),
            bool(self.access_key_secret.get_secret_value()),
        )
        if has_id != has_secret:
            raise ValueError(f"{keys} go together; one is missing")
        if bool(self.account_id) != bool(self.role_name):
            raise ValueError("'account.id' and 'role.name' go together; one is missing")
        if self.auth_mode == "aksk":
            if not has_id:
                raise ValueError(f"'tablestore.auth.mode' = 'aksk' needs {keys}")
            for name, value in (("tablestore.sts.token", self.sts_token), ("role.name", self.role_name)):
                if value:
                    raise ValueError(f"'{name}' needs 'tablestore.auth.mode' = 'sts'")
        elif has_id and self.sts_token is None and not self.role_name:
            raise ValueError(
                "'tablestore.auth.mode' = 'sts' with a key needs 'tablestore.sts.token', or 'account.id' and"
                " 'role.name' of the role to assume; a lasting key is used with 'tablestore.auth.mode' = 'aksk'"
            )
        elif not has_id and self.sts_token is not None:
            raise ValueError(f"'tablestore.sts.token' needs {keys}")
        return self

    @property
    def role(self) -> Role | None:
        """The role that is assumed."""
        if not self.role_name:
            return None
        return Role(
            arn=f"acs:ram::{self.account_id}:role/{self.role_name}",
            session=f"kafka-session-{self.account_id}",
            sts_endpoint=self.sts_endpoint.removeprefix("https://").rstrip("/"),
            region=self.region,
            longest=timedelta(milliseconds=self.client_timeout),
        )
