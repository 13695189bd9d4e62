"""Dagster resources of endpoints, such as `kafka`, and `lake`: where the systems of a run are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Final

import dagster as dg
from pydantic import ConfigDict, Field, SecretStr

from upsert_platform.changelog.lake import HOME_VARIABLE, Lake, home
from upsert_platform.changelog.tables import is_uri
from upsert_platform.graph.launchable import SECRET, HoldsSecrets, resolved
from upsert_platform.sync.endpoints import ENDPOINT_VALUES, EndpointValue

_OPTIONS = "Further table options, by their names in DDL, for tables that lack them."


def _secret(description: str) -> Any:
    return Field(default=None, description=f"{description} Give it as EnvVar.", json_schema_extra=SECRET)


class EndpointResource(HoldsSecrets):
    """Base of resources that complete the options of tables: what a table declares wins.

    A value that is left out is that of the environment variable `UPSERT_...` which its description names.
    """

    # An error of validation would show the values, which may be secrets.
    model_config = ConfigDict(hide_input_in_errors=True)

    endpoint_name: ClassVar[str]
    may_be_left_out: ClassVar[bool] = False

    options: dict[str, str] = Field(default_factory=dict, description=_OPTIONS)

    def given(self) -> dict[str, str]:
        """Field to the value that the resource is given."""
        return {
            item.field: value for item in ENDPOINT_VALUES[self.endpoint_name] if (value := self.value_of(item.field))
        }

    def of_environment(self) -> dict[str, Any]:
        """Field to the variable of the environment that gives it, of fields that have no value and no option."""
        own = {**self.held.get("options", {}), **self.options}
        return {
            item.field: dg.EnvVar.int(item.variable) if item.field == "port" else dg.EnvVar(item.variable)
            for item in self._items()
            if os.environ.get(item.variable)
            and getattr(self, item.field) is None
            and item.field not in self.held
            and item.option not in own
            and not (item.credential and self._has_credentials())
        }

    def _has_credentials(self) -> bool:
        return any(
            getattr(self, item.field) is not None or item.field in self.held
            for item in self._items()
            if item.credential
        )

    @classmethod
    def _items(cls) -> tuple[EndpointValue, ...]:
        return ENDPOINT_VALUES[cls.endpoint_name]


class KafkaResource(EndpointResource):
    """Brokers for tables whose declaration names none."""

    endpoint_name: ClassVar[str] = "kafka"

    bootstrap_servers: str | None = Field(
        default=None, description="host:port, joined by commas; UPSERT_KAFKA_BOOTSTRAP_SERVERS if left out."
    )


class TablestoreResource(EndpointResource):
    """Instance and credentials for Tablestore tables whose declaration names none."""

    endpoint_name: ClassVar[str] = "tablestore"

    endpoint: str | None = Field(
        default=None, description="Address of the instance; UPSERT_TABLESTORE_ENDPOINT if left out."
    )
    instance: str | None = Field(
        default=None, description="Name of the instance; UPSERT_TABLESTORE_INSTANCE if left out."
    )
    access_key_id: str | None = _secret("UPSERT_TABLESTORE_ACCESS_KEY_ID if left out.")
    access_key_secret: str | None = _secret("UPSERT_TABLESTORE_ACCESS_KEY_SECRET if left out.")


class MaxComputeResource(EndpointResource):
    """Project and credentials for MaxCompute tables whose declaration names none."""

    endpoint_name: ClassVar[str] = "maxcompute"

    endpoint: str | None = Field(
        default=None, description="Address of the service; UPSERT_MAXCOMPUTE_ENDPOINT if left out."
    )
    project: str | None = Field(default=None, description="Name of the project; UPSERT_MAXCOMPUTE_PROJECT if left out.")
    access_id: str | None = _secret("UPSERT_MAXCOMPUTE_ACCESS_ID if left out.")
    access_key: str | None = _secret("UPSERT_MAXCOMPUTE_ACCESS_KEY if left out.")


class PostgresResource(EndpointResource):
    """Database and user for `postgres` tables whose declaration names none."""

    endpoint_name: ClassVar[str] = "postgres"
    may_be_left_out: ClassVar[bool] = True

    url: str | None = Field(
        default=None, description="jdbc:postgresql://host:port/database; UPSERT_POSTGRES_URL if left out."
    )
    username: str | None = Field(
        default=None, description="User who may read and write the tables; UPSERT_POSTGRES_USER if left out."
    )
    password: str | None = _secret("UPSERT_POSTGRES_PASSWORD if left out.")


class MySqlResource(EndpointResource):
    """Server and user for `mysql-cdc` tables and ingestion pipelines whose declaration names none."""

    endpoint_name: ClassVar[str] = "mysql"
    may_be_left_out: ClassVar[bool] = True

    hostname: str | None = Field(default=None, description="Host of the server; UPSERT_MYSQL_HOST if left out.")
    port: int | None = Field(default=None, description="Its port; UPSERT_MYSQL_PORT, or 3306, if left out.")
    username: str | None = Field(
        default=None, description="User with SELECT and replication grants; UPSERT_MYSQL_USER if left out."
    )
    password: str | None = _secret("UPSERT_MYSQL_PASSWORD if left out.")


ENDPOINT_RESOURCES: Final[tuple[type[EndpointResource], ...]] = (
    KafkaResource,
    TablestoreResource,
    MaxComputeResource,
    PostgresResource,
    MySqlResource,
)
"""Every resource of an endpoint; `PlatformResource` has a field per one."""


class LakeResource(HoldsSecrets):
    """The lake: the folder, or the place in object storage, with the platform's Delta tables."""

    model_config = ConfigDict(hide_input_in_errors=True)

    root: str | None = Field(
        default=None, description=f"A path or a URI; {HOME_VARIABLE}, or .upsert_platform, if left out."
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Options of its storage, as delta-rs names them; the lines of the file that"
        " UPSERT_PLATFORM_LAKE_OPTIONS names, if left out.",
    )

    def of_environment(self) -> dict[str, dg.EnvVar]:
        """The variable that gives the root, where the resource has none."""
        return {"root": dg.EnvVar(HOME_VARIABLE)} if self.root is None and os.environ.get(HOME_VARIABLE) else {}

    def lake(self, root: str | None = None) -> Lake:
        """The lake.

        Args:
            root: another place than the resource's.
        """
        place = root or resolved(self.root)
        if place and not is_uri(place):
            place = str(Path(place).expanduser().absolute())
        options = self.values_of("options")
        if not options:
            return Lake.at(place or home())
        return Lake(place or home(), tuple((name, SecretStr(value)) for name, value in sorted(options.items())))
