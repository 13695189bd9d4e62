"""Reads ``transforms`` and ``predicates`` of a configuration, with the options of each of their aliases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import nearest, parse_boolean
from upsert_platform.tablestore.connect.transforms.cast import CAST_TYPES, Cast
from upsert_platform.tablestore.connect.transforms.chain import Chain, Step
from upsert_platform.tablestore.connect.transforms.date_format import DateFormat
from upsert_platform.tablestore.connect.transforms.fields import ExtractField, HoistField, ReplaceField, ValueToKey
from upsert_platform.tablestore.connect.transforms.flatten import Flatten
from upsert_platform.tablestore.connect.transforms.insert_field import INSERTED, Inserted, InsertField
from upsert_platform.tablestore.connect.transforms.mask_field import MaskField
from upsert_platform.tablestore.connect.transforms.record import Part, Transform
from upsert_platform.tablestore.connect.transforms.routing import (
    Filter,
    HasHeaderKey,
    Predicate,
    RecordIsTombstone,
    RegexRouter,
    TopicNameMatches,
)
from upsert_platform.tablestore.connect.transforms.timestamp_converter import PRECISIONS, TARGETS, TimestampConverter

PREFIXES: Final = ("transforms.", "predicates.")
LISTS: Final = ("transforms", "predicates")


@dataclass
class _Given:
    """Options of one alias. What is read is known; the rest is told as unknown."""

    values: Mapping[str, str]
    read: set[str]

    def text(self, name: str, default: str | None = None) -> str:
        self.read.add(name)
        value = self.values.get(name, "").strip()
        if not value and default is None:
            raise ValueError(f"option '{name}' is missing")
        return value or (default or "")

    def items(self, name: str, *, needed: bool = False) -> tuple[str, ...]:
        text = self.text(name, None if needed else "")
        return tuple(item.strip() for item in text.split(",") if item.strip())

    def pairs(self, name: str) -> dict[str, str]:
        found = {}
        for item in self.items(name):
            old, colon, new = item.partition(":")
            if not colon or not old.strip() or not new.strip():
                raise ValueError(f"option '{name}' takes <field>:<value>,...; '{item}' is no such pair")
            found[old.strip()] = new.strip()
        return found

    def expression(self, name: str) -> re.Pattern[str]:
        try:
            return re.compile(self.text(name))
        except re.error as error:
            raise ValueError(f"option '{name}' is not a regular expression: {error}") from None


def read_transforms(options: Options, *, subject: str, location: SourceLocation) -> tuple[Chain, list[Problem]]:
    """Reads the transforms of a configuration.

    Args:
        options: all of them; others are passed over.

    Returns:
        The chain, without the transforms that have errors, and every problem.
    """
    reader = _Reader(options, subject, location)
    return reader.chain(), reader.problems


class _Reader:
    def __init__(self, options: Options, subject: str, location: SourceLocation) -> None:
        self.problems: list[Problem] = []
        self._options = options
        self._subject = subject
        self._location = location

    def chain(self) -> Chain:
        predicates = {
            alias: found
            for alias in self._aliases("predicates")
            if (found := self._made("predicates", alias, _PREDICATES)) is not None
        }
        steps = [
            step for alias in self._aliases("transforms") if (step := self._step(alias, predicates)) is not None
        ]  # fmt: skip
        chain = Chain(tuple(steps))
        if not chain.routes_by_topic:
            self._tell("transforms", "RegexRouter takes predicate TopicNameMatches alone: a topic has one table")
        return chain

    def _tell(self, name: str, message: str) -> None:
        place = self._options.location(name) or self._location
        self.problems.append(Problem(f"{self._subject}: option '{name}': {message}", place))

    def _aliases(self, kind: str) -> list[str]:
        aliases = [item.strip() for item in self._options.get(kind, "").split(",") if item.strip()]
        for name in self._options:
            alias = name.removeprefix(f"{kind}.").partition(".")[0]
            if name.startswith(f"{kind}.") and alias not in aliases:
                self._tell(name, f"'{kind}' does not name '{alias}'{nearest(alias, aliases)}")
        if len(set(aliases)) < len(aliases):
            self._tell(kind, "an alias is named twice")
        return aliases

    def _step(self, alias: str, predicates: Mapping[str, Predicate]) -> Step | None:
        prefix = f"transforms.{alias}."
        named = self._options.get(f"{prefix}predicate", "").strip()
        transform = self._made("transforms", alias, _TRANSFORMS, also=("predicate", "negate"))
        if named and named not in predicates:
            if f"predicates.{named}.type" not in self._options:
                self._tell(f"{prefix}predicate", f"'predicates' does not name '{named}'{nearest(named, predicates)}")
            return None
        if isinstance(transform, Filter) and not named:
            self._tell(f"{prefix}type", f"Filter drops every record; name those in '{prefix}predicate'")
        try:
            negate = bool(parse_boolean(self._options.get(f"{prefix}negate", "false")))
        except ValueError as error:
            self._tell(f"{prefix}negate", str(error))
            return None
        return None if transform is None else Step(transform, predicates.get(named), negate)

    def _made(self, kind: str, alias: str, known: Mapping[str, Any], also: Iterable[str] = ()) -> Any:
        prefix = f"{kind}.{alias}."
        values = {name.removeprefix(prefix): value for name, value in self._options.items() if name.startswith(prefix)}
        written = values.pop("type", "").strip()
        name, _, part = written.rsplit(".", 1)[-1].partition("$")
        if name not in known or not written:
            shown = ", ".join(known)
            self._tell(f"{prefix}type", f"it takes one of {shown}, not '{written}'{nearest(name, known)}")
            return None
        given = _Given({key: value for key, value in values.items() if key not in also}, set())
        try:
            found = known[name](given, part)
        except ValueError as error:
            self._tell(f"{prefix}type", f"{name}: {error}")
            return None
        for option in given.values.keys() - given.read:
            self._tell(f"{prefix}{option}", f"{name} has no such option{nearest(option, given.read)}")
        return found


def _part(text: str) -> Part:
    try:
        return Part(text)
    except ValueError:
        raise ValueError("its class is told with the part that it works on, as in ...$Key or ...$Value") from None


def _cast(given: _Given, part: str) -> Transform:
    whole, fields = None, {}
    for item in given.items("spec", needed=True):
        name, colon, kind = item.rpartition(":")
        if kind.strip().lower() not in CAST_TYPES:
            raise ValueError(f"option 'spec' takes types {', '.join(CAST_TYPES)}, not '{kind.strip()}'")
        if colon:
            fields[name.strip()] = kind.strip().lower()
        else:
            whole = kind.strip().lower()
    if whole is not None and fields:
        raise ValueError("option 'spec' takes one type for the whole, or <field>:<type>,...")
    return Cast(_part(part), whole, fields)


def _insert(given: _Given, part: str) -> Transform:
    inserted = []
    for what in INSERTED:
        name = given.text(f"{what}.field", "")
        if name:
            inserted.append(Inserted(what, name.rstrip("?!"), not name.endswith("!")))
    static = given.text("static.value", "") or None
    if not inserted:
        raise ValueError(f"one of {', '.join(f'{what}.field' for what in INSERTED)} is needed")
    if any(item.what == "static" for item in inserted) and static is None:
        raise ValueError("option 'static.field' needs 'static.value'")
    return InsertField(_part(part), tuple(inserted), static)


def _replace(given: _Given, part: str) -> Transform:
    include = given.items("include") or given.items("whitelist")
    exclude = given.items("exclude") or given.items("blacklist")
    return ReplaceField(_part(part), frozenset(include), frozenset(exclude), given.pairs("renames"))


def _timestamp(given: _Given, part: str) -> Transform:
    target = given.text("target.type")
    if target not in TARGETS:
        raise ValueError(f"option 'target.type' takes {', '.join(TARGETS)}, not '{target}'")
    precision = given.text("unix.precision", "milliseconds")
    if precision not in PRECISIONS:
        raise ValueError(f"option 'unix.precision' takes {', '.join(PRECISIONS)}, not '{precision}'")
    pattern = given.text("format", "")
    if target == "string" and not pattern:
        raise ValueError("'target.type' = 'string' needs 'format'")
    field = given.text("field", "") or None
    return TimestampConverter(_part(part), field, target, DateFormat(pattern) if pattern else None, precision)


def _router(given: _Given, part: str) -> Transform:
    del part
    regex, replacement = given.expression("regex"), given.text("replacement")
    names = [*map(str, range(regex.groups + 1)), *regex.groupindex]
    for number, name in re.findall(r"(?<!\\)\$(?:(\d)|\{(\w+)\})", replacement):
        if (number or name) not in names:
            raise ValueError(f"option 'replacement' names group '{number or name}', which 'regex' does not have")
    return RegexRouter(regex, replacement)


_TRANSFORMS: Final[Mapping[str, Callable[[_Given, str], Transform]]] = {
    "Cast": _cast,
    "ExtractField": lambda given, part: ExtractField(_part(part), given.text("field")),
    "Filter": lambda given, part: Filter(),
    "Flatten": lambda given, part: Flatten(_part(part), given.text("delimiter", ".")),
    "HoistField": lambda given, part: HoistField(_part(part), given.text("field")),
    "InsertField": _insert,
    "MaskField": lambda given, part: MaskField(
        _part(part), given.items("fields", needed=True), given.text("replacement", "") or None
    ),
    "RegexRouter": _router,
    "ReplaceField": _replace,
    "TimestampConverter": _timestamp,
    "ValueToKey": lambda given, part: ValueToKey(given.items("fields", needed=True)),
}
_PREDICATES: Final[Mapping[str, Callable[[_Given, str], Predicate]]] = {
    "TopicNameMatches": lambda given, part: TopicNameMatches(given.expression("pattern")),
    "HasHeaderKey": lambda given, part: HasHeaderKey(given.text("name")),
    "RecordIsTombstone": lambda given, part: RecordIsTombstone(),
}
