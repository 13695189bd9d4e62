"""Metadata of an asset's declaration: its location, and a link to it."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import dagster as dg

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Insert, Table, is_secret_option
from upsert_platform.core.plan import Query
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.engine.store import fingerprint
from upsert_platform.sync.endpoints import ENDPOINT_VALUES

_DIGITS: Final = 12
_PLACES: Final = frozenset(value.option for values in ENDPOINT_VALUES.values() for value in values)
"""Options that say where a system is, and who logs in."""
_ADDRESS: Final = re.compile(r"(?i)end[.-]?point|(^|[.-])url$")
"""Further addresses: of a schema registry, of MaxCompute's tunnel."""

_CLAUSES: Final = re.compile(
    r"""'(?:[^']|'')*'|`[^`]*`|"[^"]*"|[()]|\s+(?=(?:SELECT|FROM|WHERE|GROUP\s+BY|HAVING|QUALIFY|WINDOW|ORDER\s+BY"""
    r"""|LIMIT|UNION|INTERSECT|EXCEPT|(?:(?:LEFT|RIGHT|FULL|INNER|CROSS)\s+)?(?:OUTER\s+)?JOIN)\b)""",
    re.IGNORECASE,
)
_OF_JOIN: Final = re.compile(r"\b(LEFT|RIGHT|FULL|INNER|CROSS|OUTER)$", re.IGNORECASE)
"""A word that the word JOIN belongs to."""


def declared_at(location: SourceLocation, project: str) -> str:
    """A place in words, relative to the project: ``users.sql:12``."""
    path = Path(location.file)
    try:
        path = path.absolute().relative_to(Path(project).absolute())
    except ValueError:
        path = Path(path.name)
    return str(SourceLocation(str(path), location.line))


def in_lines(sql: str) -> str:
    """Return a statement of one line with each of its outermost clauses on a line of its own."""
    depth = 0

    def broken(found: re.Match[str]) -> str:
        nonlocal depth
        text = found[0]
        depth += (text == "(") - (text == ")")
        joined = _OF_JOIN.search(sql[: found.start()]) is not None
        return text if depth or not text.isspace() or joined else "\n"

    return _CLAUSES.sub(broken, sql)


def version_of_table(table: Table) -> str:
    """Return the code version of a changelog's asset: the fingerprint of the table's declaration.

    It is the same wherever the declaration is loaded. Endpoints, logins and properties of clients are no part of it.
    Comments are none either, nor is what Dagster itself shows, such as owners.
    """
    return _digest(*_parts_of(table))


def version_of_insert(insert: Insert, target: Table) -> str:
    """Return the code version of a table's asset: the fingerprint of its insert and of its own declaration."""
    query = None if insert.query is None else fingerprint(insert.query)
    return _digest(*insert.projections, insert.predicate, insert.overwrite, query, *_parts_of(target))


def version_of_query(query: Query) -> str:
    """Return the code version of a query's asset: the identity of its plan, by which its state is kept."""
    return fingerprint(query)[:_DIGITS]


def _parts_of(table: Table) -> Iterator[object]:
    yield from (table.connector, table.primary_key, table.partitioned_by, table.watermark)
    for column in table.columns:
        yield (column.name, str(column.type), str(column.kind), column.metadata_key, column.expression)
    yield from sorted((name, value) for name, value in table.options.items() if not _is_of_a_place(name))


def _is_of_a_place(option: str) -> bool:
    return (
        is_secret_option(option)
        or option in _PLACES
        or _ADDRESS.search(option) is not None
        or ".properties." in f".{option}."
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:_DIGITS]


def freshness_policy(table: Table) -> dg.FreshnessPolicy | None:
    """Return Dagster's freshness policy of a table's asset; None where the declaration has no `freshness.max-age`."""
    settings = platform_settings(table)
    if settings.max_age is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=settings.max_age, warn_window=settings.warn_age)


def code_references(*locations: SourceLocation) -> dict[str, Any]:
    """Metadata that leads from an asset to the files that declare it; empty where there is no such file."""
    places = [location for location in dict.fromkeys(locations) if Path(location.file).is_file()]
    if not places:
        return {}
    with warnings.catch_warnings():
        # The only links from an asset to its declaration are marked beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        found: list[dg.LocalFileCodeReference | dg.UrlCodeReference] = [
            dg.LocalFileCodeReference(
                file_path=str(Path(place.file).absolute()),
                line_number=place.line or None,
                label=str(SourceLocation(Path(place.file).name, place.line)),
            )
            for place in places
        ]
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=found)}
