"""Keep Tablestore, MaxCompute and Kafka tables equal to the last value per key of Kafka topics."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["UpsertProjectComponent"]


def __getattr__(name: str) -> Any:
    """Imports the component where it is named: dagster takes a second to import."""
    if name in __all__:
        return getattr(import_module("upsert_platform.graph.project_component"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the package, the component among them: `dg list components` looks there."""
    return sorted([*globals(), *__all__])
