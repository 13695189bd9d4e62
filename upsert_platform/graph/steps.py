"""Settings of the steps that materialise assets: op tags, concurrency pools, retries, and what stands around a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from upsert_platform.core.model import Table
from upsert_platform.graph.pools import pool_of
from upsert_platform.graph.unchanged import without_event

Execute = Callable[[dg.AssetExecutionContext, Callable[[], "dg.MaterializeResult[Any]"]], "dg.MaterializeResult[Any]"]
"""Returns the result of an asset's step; the second argument computes it."""


class RetrySettings(dg.Model, dg.Resolvable):
    """The number and times of retries of a failed step."""

    max_retries: int = Field(default=1, ge=1, description="How often a step is tried again.")
    delay: float | None = Field(default=None, ge=0, description="Seconds before it is tried again.")
    backoff: Literal["linear", "exponential"] | None = Field(
        default=None, description="How the delay grows with each further try; needs `delay`."
    )
    jitter: Literal["full", "plus_minus"] | None = Field(
        default=None, description="How chance varies the delay; needs `delay`."
    )

    def policy(self) -> dg.RetryPolicy:
        """Return the retry policy of a step."""
        return dg.RetryPolicy(
            max_retries=self.max_retries,
            delay=self.delay,
            backoff=dg.Backoff[self.backoff.upper()] if self.backoff else None,
            jitter=dg.Jitter[self.jitter.upper()] if self.jitter else None,
        )


class OpSettings(dg.Model, dg.Resolvable):
    """Settings of the steps that materialise changelogs, queries and tables."""

    tags: dict[str, Any] = Field(default_factory=dict, description="Op tags: `dagster/priority`, `dagster-k8s/config`.")
    pool: str | None = Field(
        default=None,
        description="Concurrency pool of every step; `{endpoint}` in its name makes a pool of each endpoint.",
    )
    pools: dict[str, str] = Field(
        default_factory=dict,
        description="Connector to the concurrency pool of the steps of its tables, instead of `pool`; its name may hold"
        " `{endpoint}` too.",
    )
    retry_policy: RetrySettings | None = Field(default=None, description="Retries of a step that failed.")


@dataclass(frozen=True)
class Steps:
    """Settings of the steps of assets.

    Attributes:
        execute: returns the result of a step in its own way.
    """

    op: OpSettings = field(default_factory=OpSettings)
    execute: Execute | None = None

    def arguments(self, table: Table | None = None) -> dict[str, Any]:
        """Return the arguments of an asset's decorator.

        Args:
            table: declaration behind the asset; None for a query.
        """
        op = self.op
        return {
            "op_tags": op.tags or None,
            "pool": pool_of(op.pool if table is None else op.pools.get(table.connector, op.pool), table),
            "retry_policy": op.retry_policy.policy() if op.retry_policy else None,
        }

    def result(
        self, context: dg.AssetExecutionContext, compute: Callable[[], dg.MaterializeResult[Any]]
    ) -> dg.MaterializeResult[Any]:
        """Return the result of a step; it is no materialisation where nothing has changed."""
        found = compute() if self.execute is None else self.execute(context, compute)
        return without_event(context, found)
