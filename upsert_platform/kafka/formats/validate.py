"""Rules that bind columns and options of a format, checked when a table is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from upsert_platform.kafka.formats.options import MAP_NULL_KEY_MODES, JsonSettings
from upsert_platform.options import Settings
from upsert_platform.types import LogicalType, TypeName

Columns = Sequence[tuple[str, LogicalType]]
Finding = tuple[str, str]
"""Severity (``error`` or ``warning``) and text."""

_CHARACTERS: Final = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


def parts_of(logical: LogicalType) -> Iterator[LogicalType]:
    """A type and all types inside it."""
    yield logical
    for part in (logical.key, logical.element, *(item.type for item in logical.fields)):
        if part is not None:
            yield from parts_of(part)


def check_columns(
    format_id: str, columns: Columns, settings: Settings | None, *, truncate_timestamps: bool
) -> list[Finding]:
    """Columns that the format cannot hold."""
    findings: list[Finding] = []
    if not columns:
        findings.append(("error", "has no column; declare at least one for this side"))
    names = [name for name, _ in columns]
    for name in sorted({name for name in names if names.count(name) > 1}):
        findings.append(("error", f"holds column '{name}' twice"))
    check = _COLUMN_RULES.get(format_id)
    for name, logical in columns:
        if not truncate_timestamps and any(_too_fine(part) for part in parts_of(logical)):
            findings.append(
                (
                    "error",
                    f"column '{name}' is {logical}: the platform keeps microseconds, so a timestamp has at most 6 "
                    "fraction digits; declare TIMESTAMP(6), or allow truncation",
                )
            )
        if check is not None:
            findings += [("error", f"column '{name}' {text}") for text in check(logical)]
    return findings


def _too_fine(logical: LogicalType) -> bool:
    return logical.name in _STAMPS and (logical.precision or 0) > 6


def _json_column(logical: LogicalType) -> Iterator[str]:
    for part in parts_of(logical):
        key = part.key if part.name is TypeName.MAP else part.element if part.name is TypeName.MULTISET else None
        if key is not None and key.name not in _CHARACTERS:
            yield f"is {part}: JSON names are text, so the key of a MAP or MULTISET must be STRING, CHAR or VARCHAR"


_COLUMN_RULES: Final[dict[str, Callable[[LogicalType], Iterator[str]]]] = {
    "json": _json_column,
}


def check_settings(settings: Settings, *, direction: str) -> list[Finding]:
    """Values that only matter in one direction."""
    if isinstance(settings, JsonSettings) and settings.map_null_key_mode not in MAP_NULL_KEY_MODES:
        modes = ", ".join(MAP_NULL_KEY_MODES)
        text = f"option 'json.map-null-key.mode' takes {modes}, not '{settings.map_null_key_mode}'"
        return [("error" if direction == "sink" else "warning", text)]
    return []
