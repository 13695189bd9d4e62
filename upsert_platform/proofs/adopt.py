"""Takes over a table that another writer filled, without writing the rows that are right.

The table is proven at the offset at which its writer stopped. Then the topics are read up to their ends, the rows that
differ from that are written, under the lease and in one step with the position, and syncs go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.wording import counted
from upsert_platform.proofs.ends import At
from upsert_platform.proofs.inputs import tables_of
from upsert_platform.proofs.proof import Proof, duplicates_of, prove
from upsert_platform.proofs.shadow import read_topics
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.comparison import SHOWN_ROWS
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.reconcile import Reconciliation, check_adoptable, reconcile
from upsert_platform.sync.verify import summed
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED_KEYS: Final = 5


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
    delete_unknown: bool = False,
    dry_run: bool = False,
    examples: int = SHOWN_ROWS,
    tell: Callable[[str], None] = lambda message: None,
) -> Adoption:
    """Take over a table.

    Args:
        at: where its writer stopped.
        repair: go on where the table differs at that offset, and write the rows that differ.
        delete_unknown: delete the rows whose key no record names, of which nobody can tell whether they are right.
        dry_run: prove only.
        run: name of the run, for the lease and for commits.
        tell: is given a line per step.

    Returns:
        The proof, and nothing done where it found differences that are not to be repaired.

    Raises:
        DestinationError: the table is the platform's already, cannot be proven, or has rows that no record names; it
            is as it was.
        LeaseHeldError: another run writes the table.
        TopicError, EndpointError, RecordError: as a sync.
    """
    with closing(target.open()) as destination:
        check_adoptable(target.table.name, changelog_of(target.source, lake).head(), destination.state())
    proof = prove(spark, target, binding, lake, at=at, settle=0.0, strict=True, examples=examples, tell=tell)
    if dry_run or not (proof.equal or repair):
        return Adoption(proof)
    # A changelog that is there may know these keys, from records that the topics have let go of.
    fresh = all(binding.changelog(name, lake).head() is None for name in tables_of(target, binding))
    if proof.unknown and not delete_unknown and fresh:
        raise _unknown_rows(target.table.name, proof.unknown, proof.unknown_keys)

    def check_unnamed(hop: DestinationHop, rows: DataFrame) -> None:
        # A changelog that is there may lack records that the proof has read, of rows that are right.
        if delete_unknown:
            return
        if proof.strays is not None:
            rows = join_by_key(rows, proof.strays, proof.strays.columns, "left_anti")
        rows = rows.persist()
        try:
            found = summed(hop, rows, batch=0, complete=False)
        finally:
            rows.unpersist()
        if found.extra:
            keys = tuple(row["key"] for row in found.sample)
            late = "" if proof.unknown else next(iter(tables_of(target, binding)), "")
            raise _unknown_rows(target.table.name, found.extra, keys, late=late)

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
        done = reconcile(spark, hop, dry_run=False, adopts=True, check_unnamed=check_unnamed, tell=tell)
        return Adoption(proof, done, *duplicates_of(spark, target, destination, examples))


def _unknown_rows(table: str, count: int, keys: Sequence[str], *, late: str = "") -> DestinationError:
    """Return the refusal to go on: these rows would be deleted, and checks would call them extra where they stayed.

    Args:
        late: a table that is read, whose changelog does not name some of them, as its topics do.
    """
    named = f" ({'; '.join(keys[:_NAMED_KEYS])}{', ...' if count > len(keys[:_NAMED_KEYS]) else ''})" if keys else ""
    if late:
        return DestinationError(
            f"table '{table}' has {counted(count, 'row')} whose key no record names{named} in the lake: its changelog"
            " begins behind records that the topics have, and that the table is proven by. Nothing was written to the"
            f" table. Have the changelog read from the declared start ('upsert-platform reset {late}'), and adopt it"
            " again. --delete-unknown deletes the rows"
        )
    return DestinationError(
        f"table '{table}' has {counted(count, 'row')} whose key no record names{named}: the topics are not read from"
        " their first record or have let go of some (or its old writer goes on), so nobody can tell whether these rows"
        " are right. Nothing was written to the table. To keep the rows, let the topics name them: declare an earlier"
        " 'scan.startup.mode', or send them to the topic ('upsert-platform send TABLE ...') and adopt with"
        " --from-latest --repair; every check would call them extra otherwise. --delete-unknown deletes them"
    )
