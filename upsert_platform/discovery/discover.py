"""A topic of a cluster, from its sample to a declaration that is proven by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from upsert_platform.discovery.proof import Proof, prove
from upsert_platform.discovery.sample import Sample
from upsert_platform.discovery.table import Cluster, DiscoveredTable, discovered, statement
from upsert_platform.discovery.targets import Destination, target_statements

if TYPE_CHECKING:
    from upsert_platform.formats.registered.registry import SchemaRegistry


@dataclass(frozen=True, slots=True)
class Discovery:
    """A declared topic.

    Attributes:
        text: of the file that declares it, with its destination.
    """

    table: DiscoveredTable
    proof: Proof
    text: str

    @property
    def doubts(self) -> list[str]:
        """Return sentences about what may be meant otherwise, or does not decode."""
        found = [*self.table.doubts]
        found += [f"column '{column.name}': {column.doubt}" for column in self.table.columns if column.doubt]
        found += [f"{count} records do not decode: {reason}" for reason, count in self.proof.refused.items()]
        return [*found, *self.proof.problems]


def discover_topic(
    sample: Sample,
    cluster: Cluster,
    *,
    to: Sequence[Destination] = (),
    variables: Mapping[str, str],
    registry: SchemaRegistry | None = None,
) -> Discovery:
    """Return the declaration of a topic, proven by the sample that it is made of.

    Args:
        to: destinations that get a table and an INSERT INTO.
        variables: values for ``${NAME}`` in the declaration.
        registry: that has the schemas of records which name one.

    Raises:
        EndpointError: the registry does not answer.
    """
    table = discovered(sample, cluster, registry=registry)
    targets = [target_statements(table, item) for item in to]
    proof = prove("\n".join([statement(table), *targets]), table.name, sample, variables)
    table = replace(table, decoded=proof.decoded)
    return Discovery(table, proof, "\n".join([statement(table), *targets]))


def matching(topics: Sequence[str], pattern: str) -> list[str]:
    """Return the topics that a pattern with ``*`` and ``?`` names."""
    return [topic for topic in topics if fnmatchcase(topic, pattern)]
