"""Options of connectors as data: each connector declares a frozen settings model, this reads declared text into it.

A field's alias is the option's name in DDL. `option()` adds where it comes from, so the reference in the docs is
generated from the models.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.redaction import remember_login, remember_secret

_PYDANTIC: Final = re.compile(r"^(Input|Value|String|List|Tuple|Set) should ")
"""How pydantic begins what it says of a value."""
_DURATION_UNITS: dict[str, float] = {
    "ns": 1e-9, "nano": 1e-9, "nanos": 1e-9, "nanosecond": 1e-9, "nanoseconds": 1e-9,
    "us": 1e-6, "µs": 1e-6, "micro": 1e-6, "micros": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "": 1e-3, "ms": 1e-3, "milli": 1e-3, "millis": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_MEMORY_UNITS: dict[str, int] = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(\d+)\s*([^\W\d_]*)\s*", re.UNICODE)


def parse_duration(value: object) -> object:
    """Reads ``500ms``, ``1 s``, ``10 min``; a bare number is milliseconds."""
    if not isinstance(value, str):
        return value
    match = _QUANTITY.fullmatch(value)
    if match is None or match[2].lower() not in _DURATION_UNITS:
        raise ValueError("takes a duration such as '500ms', '1 s', '10 min', '1 h' (a bare number is milliseconds)")
    return timedelta(seconds=int(match[1]) * _DURATION_UNITS[match[2].lower()])


def parse_memory_size(value: object) -> object:
    """Reads ``64 m``, ``16 MB``, ``128 KB`` into bytes; a bare number is bytes, units count by 1024."""
    if not isinstance(value, str):
        return value
    match = _QUANTITY.fullmatch(value)
    if match is None or match[2].lower() not in _MEMORY_UNITS:
        raise ValueError("takes a size such as '64 m', '16 MB' or '128 KB' (a bare number is bytes)")
    return int(match[1]) * _MEMORY_UNITS[match[2].lower()]


def parse_boolean(value: object) -> object:
    """Reads true, false, yes and no in any case."""
    if not isinstance(value, str):
        return value
    lowered = value.strip().lower()
    if lowered in ("true", "yes"):
        return True
    if lowered in ("false", "no"):
        return False
    raise ValueError("takes true or false")


def split_list(separator: str) -> Callable[[object], object]:
    """A validator that splits at a separator, trims items and drops empty ones."""

    def split(value: object) -> object:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(separator) if item.strip())
        return value

    return split


def _above_zero(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("takes a duration above zero")
    return value


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_above_zero)]
MemorySize = Annotated[int, BeforeValidator(parse_memory_size)]
Boolean = Annotated[bool, BeforeValidator(parse_boolean)]
CommaList = Annotated[tuple[str, ...], BeforeValidator(split_list(","))]
SemicolonList = Annotated[tuple[str, ...], BeforeValidator(split_list(";"))]


class Settings(BaseModel):
    """Base of a connector's settings: frozen, and no option that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, validate_default=False)

    def model_post_init(self, context: Any, /) -> None:
        """Registers the secrets of these settings, so that no text shows them."""
        for value in vars(self).values():
            if isinstance(value, SecretStr):
                secret = value.get_secret_value()
                remember_secret(secret)
                remember_secret(secret.partition(":")[2])  # of a login as one text: user:password
            elif isinstance(value, str):
                remember_login(value)


S = TypeVar("S", bound=Settings)


def option(
    name: str, default: Any = ..., *, origin: str, description: str, synonyms: Iterable[str] = (), **constraints: Any
) -> Any:
    """Declares the option behind a settings field.

    Args:
        name: as users write it, for example ``sink.buffer-flush.max-rows``.
        default: left out when the option is required.
        origin: who documents it: ``flink``, ``alibaba``, ``volcengine``, ``tencent``, ``tablestore``, ``maxcompute``,
            ``kafka-connect``, ``confluent`` or ``platform``; several joined by a comma.
        description: one sentence in our own words, for the reference.
        synonyms: other spellings that are accepted (deprecated ones included).
    """
    return Field(
        default,
        alias=name,
        description=description,
        json_schema_extra={"origin": origin, "synonyms": list(synonyms)},
        **constraints,
    )


def option_fields(model: type[Settings]) -> dict[str, FieldInfo]:
    """Option name to field, of a settings model."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def synonyms_of(model: type[Settings]) -> dict[str, str]:
    """Accepted other spelling to option name."""
    found: dict[str, str] = {}
    for name, info in option_fields(model).items():
        extra = info.json_schema_extra
        if isinstance(extra, dict):
            for synonym in extra.get("synonyms") or ():  # type: ignore[union-attr]
                found[str(synonym)] = name
    return found


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest candidate, or an empty text."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def read_settings(
    model: type[S],
    options: Options,
    *,
    subject: str,
    location: SourceLocation,
    ignore: Callable[[str], bool] = lambda name: False,
) -> tuple[S | None, list[Problem]]:
    """Reads declared options into a settings model, and says everything that is wrong with them at once.

    Args:
        subject: what the options belong to, for messages: ``table 'users'``.
        location: used where an option's own place is unknown.
        ignore: names for which it returns true are read elsewhere (format options, ``properties.*``).

    Returns:
        The settings, or None if there are errors, and the problems.
    """
    problems: list[Problem] = []
    known = option_fields(model)
    synonyms = synonyms_of(model)
    values: dict[str, str] = {}
    for name, value in options.items():
        place = options.location(name) or location
        canonical = synonyms.get(name, name)
        if canonical not in known:
            if not ignore(name):
                hint = nearest(name, [*known, *synonyms])
                problems.append(Problem(f"{subject}: unknown option '{name}'{hint}", place))
        elif canonical in values:
            problems.append(Problem(f"{subject}: '{name}' and '{canonical}' are the same option; keep one", place))
        else:
            values[canonical] = value
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        problems.extend(_explain(error, options, subject=subject, location=location))
        return None, problems
    return (None if any(problem.severity == "error" for problem in problems) else settings), problems


def _explain(error: ValidationError, options: Options, *, subject: str, location: SourceLocation) -> list[Problem]:
    problems = []
    for detail in error.errors(include_input=False, include_url=False):
        name = str(detail["loc"][0]) if detail["loc"] else ""
        place = options.location(name) or location
        if detail["type"] == "missing":
            problems.append(Problem(f"{subject}: required option '{name}' is missing", place))
            continue
        reason = _PYDANTIC.sub("must ", detail["msg"].removeprefix("Value error, "))
        problems.append(Problem(f"{subject}: option '{name}' {reason}" if name else f"{subject}: {reason}", place))
    return problems


def documented(model: type[Settings]) -> list[dict[str, str]]:
    """Rows of the options reference: name, type, default, origin, description."""
    rows = []
    for name, info in option_fields(model).items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        rows.append(
            {
                "name": name,
                "default": "(required)" if info.is_required() else _shown(info.default),
                "origin": str(extra.get("origin", "")),
                "description": info.description or "",
            }
        )
    return rows


def _shown(default: object) -> str:
    match default:
        case None | ():
            return ""
        case bool():
            return str(default).lower()
        case timedelta():
            milliseconds = int(default.total_seconds() * 1000)
            return f"{milliseconds // 1000} s" if milliseconds % 1000 == 0 else f"{milliseconds} ms"
        case tuple():
            return ",".join(map(str, default))
    return str(default)
