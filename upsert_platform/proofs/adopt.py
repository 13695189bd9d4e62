"""Takes over a table that another writer filled, without writing the rows that are right.

The table is proven at the offset at which its writer stopped. Then the topics are read up to their ends, the rows that
differ from that are written, under the lease and in one step with the position, and syncs go on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.proofs.ends import At
from upsert_platform.proofs.proof import Proof, duplicates_of, prove
from upsert_platform.proofs.shadow import read_topics
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.comparison import SHOWN_ROWS
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.reconcile import Reconciliation, check_adoptable, reconcile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Adoption:
    """The findings and effects of an adoption.

    Attributes:
        proof: of the table at the offset at which its writer stopped.
        done: the rows that were written and the comparison afterwards; None where nothing was done.
        duplicates: keys that the table holds more than once afterwards, as its writer put them into other partitions;
            `duplicate_keys` names some.
    """

    proof: Proof
    done: Reconciliation | None = None
    duplicates: int = 0
    duplicate_keys: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Return whether the table is equal at the end."""
        return self.proof.equal if self.done is None else self.done.last.passed and not self.duplicates


def adopt(
    spark: SparkSession,
    target: Target,
    binding: Binding,
    lake: Lake,
    *,
    at: At,
    run: str,
    repair: bool = False,
    dry_run: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> Adoption:
    """Take over a table.

    Args:
        at: where its writer stopped.
        repair: go on where the table differs at that offset, and write the rows that differ.
        dry_run: prove only.
        run: name of the run, for the lease and for commits.
        tell: is given a line per step.

    Returns:
        The proof, and nothing done where it found differences that are not to be repaired.

    Raises:
        DestinationError: the table is the platform's already, or cannot be proven.
        LeaseHeldError: another run writes the table.
        TopicError, EndpointError, RecordError: as a sync.
    """
    with closing(target.open()) as destination:
        check_adoptable(target.table.name, changelog_of(target.source, lake).head(), destination.state())
    proof = prove(spark, target, binding, lake, at=at, settle=0.0, strict=True, examples=examples, tell=tell)
    if dry_run or not (proof.equal or repair):
        return Adoption(proof)
    tell("reading the topics into the lake")
    read_topics(spark, target, binding, lake, run=run)
    tell(f"writing the rows of '{target.table.name}' that differ")
    with closing(target.open()) as destination:
        hop = DestinationHop(
            target,
            changelog_of(target.source, lake),
            destination,
            refused=RefusedStore(lake.refused(target.table.name)),
            run=run,
        )
        done = reconcile(spark, hop, dry_run=False, adopts=True, tell=tell)
        return Adoption(proof, done, *duplicates_of(spark, target, destination, examples))
