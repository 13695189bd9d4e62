"""Keep Tablestore, MaxCompute and Kafka tables equal to the last value per key of Kafka topics."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_AUTOMATION = "upsert_platform.graph.automation"
_DECORATOR = "upsert_platform.graph.asset_decorator"
_LATE = {
    "UpsertProject": _DECORATOR,
    "UpsertProjectComponent": "upsert_platform.graph.project_component",
    "UpsertTranslator": "upsert_platform.graph.translator",
    "build_upsert_checks": _DECORATOR,
    "build_upsert_sensor": _DECORATOR,
    "on_new_offsets": _AUTOMATION,
    "on_overdue": _AUTOMATION,
    "udf": "upsert_platform.core.user_functions",
    "udtf": "upsert_platform.core.user_functions",
    "upsert_assets": _DECORATOR,
}
__all__ = list(_LATE)


def __getattr__(name: str) -> Any:
    """Imports what is named when it is named: dagster takes a second to import."""
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the package, those imported late among them: `dg list components` looks there."""
    return sorted([*globals(), *__all__])
