"""Projects, schemas, tables and partitions, read."""

from __future__ import annotations

import json
import time

from upsert_platform.local.maxcompute.errors import ServiceError, is_a_view, no_such_partition
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.rest.xml import Literal, Node, answer, http_date
from upsert_platform.local.maxcompute.schema import Partition, Table, full_spec, parse_spec
from upsert_platform.local.maxcompute.service import Service

_PAGE = 1000


def get_project(service: Service, request: Request) -> Response:
    """``GET /projects/P``, also with ``properties=all`` and ``extended``."""
    if "extended" in request.query:
        return _extended(service)
    properties = {
        "odps.schema.model.enabled": "true" if service.three_tier else "false",
        "odps.sql.type.system.odps2": "true",
        "odps.table.lifecycle": "optional",
        "READ_TABLE_MAX_ROW": "10000",
    }
    started = http_date(service.started)
    return answer(
        (
            "Project",
            [
                ("Name", service.project),
                ("Type", "managed"),
                ("Owner", service.owner),
                ("State", "AVAILABLE"),
                ("CreationTime", started),
                ("LastModifiedTime", started),
                (
                    "Properties",
                    [("Property", [("Name", name), ("Value", value)]) for name, value in properties.items()],
                ),
            ],
        ),
        headers={"x-odps-owner": service.owner, "x-odps-creation-time": started, "Last-Modified": started},
    )


def _extended(service: Service) -> Response:
    """Return the size of the project in bytes."""
    schemas = service.catalogue.schema_names()
    size = sum(service.store.statistics(table)[0] for name in schemas for table in service.catalogue.tables(name))
    properties = {
        "usedQuotaPhysicalSize": size,
        "usedQuotaSize": size,
        "logicalSize": size,
        "recycleBinLogicalSize": 0,
        "recycleBinPhysicalSize": 0,
        "failoverLogicalSize": 0,
        "failoverPhysicalSize": 0,
        "tempResourceLogicalSize": 0,
        "tempResourcePhysicalSize": 0,
        "volumeLogicalSize": 0,
        "volumePhysicalSize": 0,
    }
    listed = [("Property", [("Name", name), ("Value", str(value))]) for name, value in properties.items()]
    return answer(("Project", [("ExtendedProperties", listed)]))


def get_schema(service: Service, request: Request, schema: str) -> Response:
    """``GET /projects/P/schemas/S``."""
    created = dict(service.catalogue.execute("SELECT name, created FROM schemas")).get(schema.lower())
    if created is None:
        # Over REST with another code than in SQL: clients take this one for "no".
        raise ServiceError(404, "NoSuchObject", f"ODPS-0110061:Schema not found - '{schema}'")
    moment = http_date(created)
    return answer(
        (
            "Schema",
            [("Project", service.project), ("Name", schema.lower()), ("Owner", service.owner), ("Type", "MANAGED")],
        ),
        headers={"x-odps-owner": service.owner, "x-odps-creation-time": moment, "Last-Modified": moment},
    )


def list_schemas(service: Service, request: Request) -> Response:
    """``GET /projects/P/schemas``."""
    nodes: list[Node] = [
        ("Schema", [("Name", name), ("Owner", service.owner), ("Type", "MANAGED")])
        for name in service.catalogue.schema_names()
    ]
    return answer(("Schemas", [("Marker", ""), ("MaxItems", str(_PAGE)), *nodes]))


def list_tables(service: Service, request: Request, schema: str) -> Response:
    """``GET .../tables``: by prefix, page by page."""
    prefix = request.query.get("name", "").lower()
    marker = request.query.get("marker", "")
    wanted = request.query.get("type", "").upper()
    found = [
        table
        for table in service.catalogue.tables(schema)
        if table.name.startswith(prefix) and table.name > marker and wanted in ("", _type_of(table))
    ]
    page = found[:_PAGE]
    nodes: list[Node] = [
        (
            "Table",
            [*_identity(service, table), ("CreationTime", http_date(table.created))],
        )
        for table in page
    ]
    following = page[-1].name if len(found) > len(page) else ""
    return answer(("Tables", [("Marker", following), ("MaxItems", str(_PAGE)), *nodes]))


def _type_of(table: Table) -> str:
    return "VIRTUAL_VIEW" if table.query else "MANAGED_TABLE"


def _identity(service: Service, table: Table) -> list[Node]:
    """The elements that every answer about a table begins with."""
    return [
        ("Name", table.name),
        ("TableId", table.table_id),
        ("Project", service.project),
        ("SchemaName", table.schema),
        ("Owner", table.owner),
        ("Type", _type_of(table)),
    ]


def get_table(service: Service, request: Request, schema: str, name: str) -> Response:
    """``GET .../tables/T``: the table, one partition of it, or its partitions."""
    table = service.catalogue.relation(schema, name)
    if "partitions" in request.query:
        return _list_partitions(service, request, table)
    if "data" in request.query and table.query:
        raise is_a_view(table.name)
    if "data" in request.query:
        from upsert_platform.local.maxcompute.rest.preview import preview

        return preview(service, request, table)
    if "partition" in request.query:
        return _get_partition(service, request, table)
    described = _table_json(service, table, extended="extended" in request.query)
    return answer(
        (
            "Table",
            [
                *_identity(service, table),
                ("Comment", table.comment),
                ("Schema", Literal(json.dumps(described)), {"format": "Json"}),
                ("CreationTime", http_date(table.created)),
                ("LastModifiedTime", http_date(table.last_modified)),
            ],
        )
    )


def _table_json(service: Service, table: Table, *, extended: bool) -> dict[str, object]:
    described: dict[str, object] = {
        "tableName": table.name,
        "comment": table.comment,
        "owner": table.owner,
        "createTime": int(table.created),
        "lastDDLTime": int(table.last_ddl),
        "lastModifiedTime": int(table.last_modified),
        "isVirtualView": bool(table.query),
        "isExternal": False,
        "lifecycle": table.lifecycle,
        "columns": [column.as_json() for column in table.columns],
        "partitionKeys": [column.as_json() for column in table.partition_keys],
        "shardExist": False,
        "tableLabel": "",
    }
    size, records = service.store.statistics(table)
    described |= {"size": size, "recordNum": records, "tableProperties": json.dumps(table.properties)}
    if table.query:
        described |= {"viewText": table.query, "viewExpandedText": table.query}
    if extended:
        described |= {"IsArchived": False, "PhysicalSize": size, "FileNum": 1}
        described["Reserved"] = json.dumps(reserved(table))
    return described


def reserved(table: Table) -> dict[str, object]:
    """The ``Reserved`` block: what makes a table a Delta table."""
    found: dict[str, object] = {
        "schema_version": str(table.schema_version),
        "Transactional": "true" if table.transactional else "false",
    }
    if table.primary_key:
        found["PrimaryKey"] = list(table.primary_key)
    if table.transactional:
        found |= {
            "acid.data.retain.hours": str(table.retain_hours),
            "write.bucket.num": str(table.buckets),
            "cdc_size": "0",
            "cdc_record_num": "-1",
            "cdc_latest_version": str(table.version),
            "cdc_latest_timestamp": str(int(table.last_modified)),
        }
    return found


def _get_partition(service: Service, request: Request, table: Table) -> Response:
    spec = full_spec(table, request.query["partition"])
    partition = service.catalogue.find_partition(table.table_id, spec)
    if partition is None:
        raise no_such_partition(table.name, spec)
    size, records = service.store.statistics(table, partition)
    described = {
        "createTime": int(partition.created),
        "lastDDLTime": int(partition.created),
        "lastModifiedTime": int(partition.modified),
        "lastAccessTime": int(time.time()),
        "partitionSize": size,
        "partitionRecordNum": records,
        "IsArchived": False,
        "IsExstore": False,
        "LifeCycle": table.lifecycle,
        "PhysicalSize": size,
        "FileNum": 1,
        "Reserved": json.dumps({}),
    }
    return answer(("Partition", [("Schema", Literal(json.dumps(described)))]))


def _list_partitions(service: Service, request: Request, table: Table) -> Response:
    prefix = parse_spec(request.query["partition"]) if request.query.get("partition") else {}
    marker = request.query.get("marker", "")
    found = [
        partition
        for partition in service.catalogue.partitions(table.table_id)
        if partition.spec > marker and all(partition.values.get(name) == value for name, value in prefix.items())
    ]
    page = found[:_PAGE]
    following = page[-1].spec if len(found) > len(page) else ""
    nodes = [_partition_node(service, table, partition) for partition in page]
    return answer(("Partitions", [("Marker", following), ("MaxItems", str(_PAGE)), *nodes]))


def _partition_node(service: Service, table: Table, partition: Partition) -> Node:
    size, records = service.store.statistics(table, partition)
    columns: list[Node] = [("Column", [], {"Name": name, "Value": value}) for name, value in partition.values.items()]
    return (
        "Partition",
        [
            *columns,
            ("CreationTime", str(int(partition.created))),
            ("LastDDLTime", str(int(partition.created))),
            ("LastModifiedTime", str(int(partition.modified))),
            ("PartitionSize", str(size)),
            ("PartitionRecordCount", str(records)),
        ],
    )
