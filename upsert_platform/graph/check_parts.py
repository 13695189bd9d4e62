"""Checks of an asset that share a step: each is evaluated by itself, and what one of them meets does not stop others.

Each step is a part of the graph that a code location loads, so that one a check makes many tables slow to load.
Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.graph.resources import PlatformResource

Evaluate = Callable[[dg.AssetCheckExecutionContext, PlatformResource], Iterator[dg.AssetCheckResult]]
"""Yields the result of a check; may raise afterwards, which fails the step."""


@dataclass(frozen=True)
class CheckPart:
    """A check without a step of its own.

    Attributes:
        spec: as Dagster shows it.
        evaluate: yields its one result.
    """

    spec: dg.AssetCheckSpec
    evaluate: Evaluate


def checks_in_one_step(op_name: str, parts: Sequence[CheckPart], names: AssetKeys) -> dg.AssetChecksDefinition:
    """Return checks of which a run evaluates those that it selects, in one step.

    Every check yields its result before the step fails for one that could not be evaluated. Of several such, the step
    fails with the first, and the log has the others.

    Args:
        op_name: of the step.
        parts: in the order of their evaluation.
        names: of the project's resources.
    """

    @dg.multi_asset_check(name=op_name, specs=[part.spec for part in parts], can_subset=True)
    @names.bound
    def check(context: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        failures: list[tuple[str, Exception]] = []
        for part in parts:
            if part.spec.key not in context.selected_asset_check_keys:
                continue
            try:
                with told_plainly():
                    yield from part.evaluate(context, platform)
            except Exception as error:  # noqa: BLE001 - raised below, once the other checks have yielded
                failures.append((part.spec.name, error))
        for name, failure in failures[1:]:
            context.log.error(f"check '{name}' failed, too: {getattr(failure, 'description', None) or failure}")
        if failures:
            raise failures[0][1]

    return check
