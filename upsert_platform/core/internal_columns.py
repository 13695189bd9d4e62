"""Names of columns that the platform adds to rows of users while it works on them.

Every such name begins with one prefix, which `validate` refuses in declared columns, so that no column of a user is
taken for one of the platform. Columns that lakes and change frames keep (`changelog.rows.SYSTEM_COLUMNS`,
`destination.OPERATION`, `destination.SEQUENCE`) have names of their own, each of which is reserved.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__upsert_"


def internal(name: str) -> str:
    """Return the name of an internal column."""
    return f"{PREFIX}{name}"


def is_internal(name: str) -> bool:
    """Return whether a name is taken by an internal column, in any case: Spark does not distinguish case."""
    return name.lower().startswith(PREFIX)
