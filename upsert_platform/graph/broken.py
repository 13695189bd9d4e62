"""Assets that stand for declarations with errors: they are seen, they fail with the reason, and others go on.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import dagster as dg

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import asset_part
from upsert_platform.graph.declared import code_references
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.sync.faults import PROJECT

GROUP: Final = "declarations"
BROKEN_TAG: Final = "upsert/broken"
_LOGGER: Final = logging.getLogger(__name__)
Faults = Mapping[str, tuple[Problem, ...]]


def broken_asset(
    key: dg.AssetKey,
    problems: Sequence[Problem],
    *,
    group: str,
    deps: Iterable[dg.AssetKey] = (),
) -> dg.AssetsDefinition:
    """An asset that fails with the errors of its declaration, whenever it is asked for.

    Args:
        deps: assets that it would read.
    """
    told = "\n".join(f"- {shown(problem)}" for problem in problems)

    @dg.asset(
        key=key,
        deps=list(deps),
        group_name=group,
        tags={BROKEN_TAG: "true"},
        description="**Cannot be used**: its declaration has errors. 'upsert-platform validate' shows them again."
        f"\n\n{told}",
        metadata=code_references(*(problem.location for problem in problems if problem.location is not None)),
    )
    def broken() -> None:
        with told_plainly():
            raise DeclarationError(problems)

    return broken


def broken_declarations(faults: Faults, names: AssetKeys) -> Iterator[dg.AssetsDefinition]:
    """One asset per file whose errors belong to no table."""
    files: dict[str, list[Problem]] = {}
    for problem in faults.get(PROJECT, ()):
        file = Path(problem.location.file).name if problem.location is not None else "project"
        files.setdefault(file, []).append(problem)
    for file, problems in files.items():
        key = dg.AssetKey([*([names.instance] if names.instance else []), GROUP, asset_part(file)])
        yield broken_asset(key, problems, group=GROUP)


def warn_of(unset: Sequence[str], faults: Faults, *, folder: str) -> None:
    """Lists what a code location was loaded without."""
    if unset:
        _LOGGER.warning(
            "project %s: %d variables are not set where it is loaded; runs need them: %s",
            folder, len(unset), ", ".join(unset),
        )  # fmt: skip
    for name, problems in faults.items():
        for problem in problems:
            _LOGGER.warning("project %s: %s cannot be used: %s", folder, name or "a declaration", problem)
