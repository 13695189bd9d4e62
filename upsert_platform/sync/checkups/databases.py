"""Servers of databases that tables are read from: do they answer, log rows whole, and let the user read.

Of what was read already: whether it is known to differ from the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.mysql.catalog import cascades, read_table
from upsert_platform.mysql.connection import Connection, require_row_log
from upsert_platform.mysql.privileges import require_grants
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform.sync.binding import Binding, changelog_of
from upsert_platform.sync.checkups.finding import Check, Finding, State

_AREA: Final = "mysql"
_REMEDY: Final = "check 'hostname', 'port', the network, and the user's password and grants"
_LOGGED: Final = "let the server log all schemas, or give statements about the table in sessions that use its schema"
_NEW_SNAPSHOT: Final = "run job 'rebuild' with this table as 'tables'; the next sync reads a new snapshot"


def database_checks(binding: Binding, lake: Lake) -> list[Check]:
    """One check per table."""
    found = [source for source in binding.sources.values() if isinstance(source, MySqlTableSource)]
    return [
        Check(_AREA, f"{item.settings.server} {item.stream}", partial(checked_table, item, lake), _REMEDY)
        for item in found
    ]


def checked_table(source: MySqlTableSource, lake: Lake) -> Iterator[Finding]:
    """One table: whether its server tells of all that changes it, and whether all of that was followed."""
    settings = source.settings
    with Connection(settings.server) as connection:
        require_row_log(connection)
        require_grants(connection, settings.database, settings.table)
        table = read_table(connection, settings.database, settings.table)
        found = cascades(connection, table) if table is not None else []
    if found:
        told = f"the server changes its rows by foreign keys ({', '.join(found)}), which its log does not tell"
        remedy = "let the application change these rows itself, or take a new snapshot now and then (job 'rebuild')"
        yield Finding(_AREA, f"{settings.server} {source.stream}", State.WARNING, told, remedy)
    head = changelog_of(source, lake).head()
    for told in source.warnings(head.positions) if head else ():
        yield Finding(_AREA, f"{settings.server} {source.stream}", State.WARNING, told, _NEW_SNAPSHOT)
    (stream,) = source.discover()
    for told in source.stream_warnings([stream]):
        yield Finding(_AREA, f"{settings.server} {source.stream}", State.WARNING, told, _LOGGED)
    told = f"about {stream.rows} rows; the log is at {stream.log.end}, and begins with {stream.log.start.file}"
    yield Finding(_AREA, f"{settings.server} {source.stream}", State.OK, told)
