"""Assets that the platform observes and others write: topics, tables of databases, Delta tables of MaxCompute."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg


def observable_asset(spec: dg.AssetSpec, function: Callable[..., Any], *, name: str) -> dg.AssetsDefinition:
    """Return the observable asset of a spec, with the spec's owners.

    Args:
        function: returns its ObserveResult, whose data version drives automation.
        name: of the op.
    """
    with warnings.catch_warnings():
        # The only form of an observed asset that keeps its owners is marked beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        made: dg.AssetsDefinition = dg.multi_observable_source_asset(name=name, specs=[spec])(function)
    return made
