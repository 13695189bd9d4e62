"""Rows of the options reference, from the settings models themselves."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from upsert_platform.core.options import CommaList, MemorySize, SemicolonList, Settings, documented, option_fields

_HEADINGS: Final = ("option", "default", "origin", "meaning")
_LIST_SEPARATORS: Final = {SemicolonList: "semicolons", CommaList: "commas"}
_NO_EFFECT: Final = "no effect"
_REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the reference.

    Attributes:
        second: under the section's second heading; for options the default, empty when there is none.
        third: under the third heading; for options who documents them.
        status: ``no effect`` (accepted with a warning), ``refused`` (an error), or empty.
    """

    name: str
    second: str
    third: str
    meaning: str
    status: str = ""

    @property
    def text(self) -> str:
        """The meaning, with the status in front."""
        return f"({self.status}) {self.meaning}" if self.status else self.meaning


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the reference.

    Attributes:
        name: as given to ``upsert-platform options``.
        about: what the options belong to and where they are written; Markdown, one paragraph.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    headings: tuple[str, str, str, str] = _HEADINGS


def settings_rows(
    model: type[Settings],
    *,
    without_effect: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    synonyms: bool = True,
) -> tuple[Row, ...]:
    """Rows of a settings model, in the order of its declaration.

    Args:
        without_effect: options that are accepted with a warning, and what takes their place.
        notes: options with one more sentence, behind all others.
        synonyms: whether other spellings are told.
    """
    fields, replaced = option_fields(model), without_effect or {}
    rows = []
    for item in documented(model):
        name, info = item["name"], fields[item["name"]]
        parts = [_sentence(item["description"])]
        if name not in replaced:
            parts.append(_sentence(_takes(info)))
        if synonyms and (others := _synonyms(info)):
            parts.append(f"Also written {', '.join(f'`{other}`' for other in others)}.")
        if name in replaced:
            parts.append(_sentence(f"{replaced[name][:1].upper()}{replaced[name][1:]}"))
        parts.append(_sentence((notes or {}).get(name, "")))
        shown = _memory(info.default) if _is(info, MemorySize) and not info.is_required() else item["default"]
        status = _NO_EFFECT if name in replaced else ""
        rows.append(Row(name, shown, item["origin"], " ".join(part for part in parts if part), status))
    return tuple(rows)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _synonyms(info: FieldInfo) -> list[str]:
    extra = info.json_schema_extra
    found = extra.get("synonyms") if isinstance(extra, dict) else None
    return [str(item) for item in found] if isinstance(found, list) else []


def _is(info: FieldInfo, kind: Any) -> bool:
    """Return whether a field is declared by one of the annotated types of `upsert_platform.core.options`."""
    return kind.__metadata__[0] in [*info.metadata, *(part for _, metadata in _leaves(info) for part in metadata)]


def _leaves(info: FieldInfo) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The types that a field takes, without None, each with what it is annotated with."""

    def of(kind: Any, metadata: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            yield from of(kind.__origin__, (*metadata, *kind.__metadata__))
        elif origin in (typing.Union, types.UnionType):
            for part in typing.get_args(kind):
                yield from of(part, metadata)
        elif kind is not type(None):
            yield kind, metadata

    yield from of(info.annotation, tuple(info.metadata))


def _takes(info: FieldInfo) -> str:
    """Return the values that a field accepts, if its description leaves that open."""
    separator = next((text for kind, text in _LIST_SEPARATORS.items() if _is(info, kind)), "")
    if separator:
        return "" if f"joined by {separator}" in (info.description or "") else f"A list joined by {separator}"
    kind, metadata = next(iter(_leaves(info)))
    if _is(info, MemorySize):
        return f"A size{_bounds(metadata, _memory)}"
    if kind is bool:
        return "`true` or `false`"
    if kind is timedelta:
        return "A duration"
    if kind is int:
        return f"A whole number{_bounds(metadata, str)}"
    if kind is SecretStr:
        return "Secret: never shown"
    values = _values(kind)
    listed = f"`{'`, `'.join(values[:-1])}` or `{values[-1]}`" if len(values) > 1 else ""
    return "" if all(value.lower() in (info.description or "").lower() for value in values) else listed


def _values(kind: Any) -> list[str]:
    if typing.get_origin(kind) is Literal:
        return [str(value) for value in typing.get_args(kind)]
    return [str(item.value) for item in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _bounds(metadata: tuple[Any, ...], shown: Callable[[int], str]) -> str:
    def bound(name: str) -> int | None:
        return next((value for item in metadata if (value := getattr(item, name, None)) is not None), None)

    least, most, above = bound("ge"), bound("le"), bound("gt")
    if least is not None and most is not None:
        return f" from {shown(least)} to {shown(most)}"
    if least is not None:
        return f", {shown(least)} or more"
    return f" above {shown(above)}" if above is not None else ""


def _memory(size: int | None) -> str:
    """Bytes in the largest unit that divides them."""
    if size is None:
        return ""
    for unit, shift in (("gb", 30), ("mb", 20), ("kb", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return str(size)
