"""The grants that a reader needs, asked for before it begins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql.chunks import quoted
from upsert_platform.mysql.connection import Connection

_GRANT: Final = re.compile(r"GRANT (?P<what>.+?) ON (?:TABLE )?(?P<where>\S+) TO ", re.IGNORECASE)
_ROLE: Final = re.compile(r"GRANT [`'\"][^ ]+[`'\"](?:@\S+)? TO ", re.IGNORECASE)
_EVERYWHERE: Final = "*.*"
_READS_LOG: Final = ("REPLICATION SLAVE", "REPLICATION REPLICA")
_TELLS_LOG: Final = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER")


def require_grants(connection: Connection, schema: str, table: str) -> None:
    """Stops where a user may not read a table or the log.

    Raises:
        EndpointError: spells out the statement that gives what is missing.
    """
    found = missing_grants(
        [str(row[0]) for row in connection.query("SHOW GRANTS")],
        schema=schema,
        table=table,
        mariadb=connection.is_mariadb(),
    )
    if found:
        account = str(connection.query("SELECT CURRENT_USER()")[0][0])
        user, _, host = account.rpartition("@")
        needed = "; ".join(f"GRANT {what} ON {where} TO '{user}'@'{host}'" for what, where in found)
        raise EndpointError(f"MySQL server {connection.server}: user {account} may not read what is needed: {needed}")


def missing_grants(granted: Iterable[str], *, schema: str, table: str, mariadb: bool) -> list[tuple[str, str]]:
    """Return the privileges that a user lacks, each with its object.

    Args:
        granted: lines of SHOW GRANTS; where a role is among them nothing is missing as far as they tell.
    """
    global_ones: set[str] = set()
    reads = False
    full = {
        _EVERYWHERE,
        f"{quoted(schema)}.*",
        f"{quoted(schema)}.{quoted(table)}",
        f"{quoted(schema.replace('_', chr(92) + '_'))}.*",
    }
    for line in granted:
        if _ROLE.match(line):
            return []
        match = _GRANT.match(line)
        if match is None:
            continue
        privileges = {part.strip().upper() for part in re.sub(r"\([^)]*\)", "", match["what"]).split(",")}
        everything = any(part.startswith("ALL") for part in privileges)
        where = match["where"]
        if where == _EVERYWHERE:
            global_ones |= {"ALL"} if everything else privileges
        pattern = _is_pattern_of(where, schema)
        if (where in full or pattern) and (everything or "SELECT" in privileges):
            reads = True
    missing = [] if reads else [("SELECT", f"{quoted(schema)}.{quoted(table)}")]
    if "ALL" not in global_ones:
        log = []
        if not global_ones & set(_READS_LOG):
            log.append("REPLICATION SLAVE")
        if not global_ones & set(_TELLS_LOG):
            log.append("BINLOG MONITOR" if mariadb else "REPLICATION CLIENT")
        if log:
            missing.append((", ".join(log), _EVERYWHERE))
    return missing


def _is_pattern_of(where: str, schema: str) -> bool:
    """Return whether a grant on schemas, in which ``%`` and ``_`` stand for others, is on one."""
    name, _, rest = where.rpartition(".")
    if rest != "*" or not name.startswith("`"):
        return False
    parts = re.split(r"(\\.|%|_)", name[1:-1].replace("``", "`"))
    found = "".join({"%": ".*", "_": "."}.get(part, re.escape(part.removeprefix("\\"))) for part in parts)
    return re.fullmatch(found, schema) is not None
