"""Resources whose values are the defaults of a launch, with secrets that no page of Dagster shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import dagster as dg
from pydantic import PrivateAttr

from upsert_platform.core.model import is_secret_option
from upsert_platform.core.redaction import has_password

SECRET: Final[dict[str, Any]] = {"dagster__is_secret": True}
"""`json_schema_extra` of a field whose value Dagster masks."""
_HELD = "_held"
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|(access|account)[._-]?key|credential|sas[._-]")
"""As Spark redacts its settings, with the names of storage options of delta-rs."""
_ENV_VARS: Final = (dg.EnvVar, type(dg.EnvVar.int("")))
"""Variables of texts, and of integers, which are no texts."""


class HoldsSecrets(dg.ConfigurableResource[Any]):
    """A resource that keeps secrets of its definition out of Dagster's configuration.

    A value of Dagster's configuration is shown by the resource's page, by GraphQL and by "scaffold all default config",
    and is part of the snapshot of every run. A secret that is given as a text, not as EnvVar, stays in this process.
    """

    _held: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def held(self) -> dict[str, Any]:
        """Field to its secret, or to its secret entries."""
        return self._held

    def value_of(self, field: str) -> str | None:
        """The value of a text field, a secret or not, with an EnvVar resolved; None where there is none."""
        value = getattr(self, field)
        return resolved(value if value is not None else self.held.get(field))

    def values_of(self, field: str) -> dict[str, str]:
        """The entries of a field that maps names to texts, secrets included; those without a value are left out."""
        entries = {**self.held.get(field, {}), **getattr(self, field)}
        return {name: text for name, value in entries.items() if (text := resolved(value)) is not None}


def resolved(value: object) -> str | None:
    """The text of a configured value; of a variable that nobody sets None.

    Numbers and booleans are as properties write them. ``{"env": NAME}`` is how configuration writes an EnvVar.
    """
    if isinstance(value, _ENV_VARS):
        found = os.environ.get(_variable(value))
        return found or None
    if isinstance(value, Mapping) and set(value) == {"env"}:
        return os.environ.get(str(value["env"]))
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by their whole names: ``{"spark": {"ui": {"enabled": ...}}}`` is ``spark.ui.enabled``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and set(value) != {"env"}:
            found.update(flat(value, f"{above}{name}."))
        else:
            found[f"{above}{name}"] = value
    return found


def launchable(resource: HoldsSecrets, **given: Any) -> Any:
    """The resource as a top-level one of a code location: a launch that names some values keeps the others.

    By itself Dagster takes the defaults of the class for values that a launch leaves out.

    Args:
        given: values and nested resources that replace those of the resource.
    """
    kind = type(resource)
    held: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for name, info in kind.model_fields.items():
        value = given.get(name, getattr(resource, name))
        if isinstance(value, dict):
            value = flat(value)
            hidden = {key: item for key, item in value.items() if _hides(key, item)}
            held[name] = {**resource.held.get(name, {}), **hidden}
            data[name] = {key: _configured(item) for key, item in value.items() if key not in hidden}
        elif _hides_field(value, secret=info.json_schema_extra == SECRET):
            held[name] = value
        elif value is not None:
            data[name] = value
        elif name in resource.held:
            held[name] = resource.held[name]
    if any(held.values()):
        body = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__annotations__": {_HELD: dict[str, Any]}}
        kind = type(kind.__name__, (kind,), {**body, _HELD: PrivateAttr(default_factory=lambda: held)})
    return kind.configure_at_launch(**data)


def _hides_field(value: object, *, secret: bool) -> bool:
    """Return whether a text is a secret: that of a secret field, or an address with a password in it."""
    return isinstance(value, str) and not isinstance(value, _ENV_VARS) and (secret or has_password(value))


def _hides(name: str, value: object) -> bool:
    secret = is_secret_option(name) or _SECRET_NAME.search(name) is not None
    return (secret and not isinstance(value, (*_ENV_VARS, Mapping))) or _hides_field(value, secret=False)


def _configured(value: object) -> object:
    return {"env": _variable(value)} if isinstance(value, _ENV_VARS) else value


def _variable(value: Any) -> str:
    return str(value.env_var_name if isinstance(value, dg.EnvVar) else value.name)
