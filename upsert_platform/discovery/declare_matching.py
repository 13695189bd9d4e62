"""Declarations of the topics of a cluster that a pattern names, without where the cluster is."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.discovery.discover import Discovery, discover_topic, matching
from upsert_platform.discovery.sample import sample_topic, topics_of
from upsert_platform.discovery.table import SERVERS, Cluster, check_names, statement
from upsert_platform.discovery.targets import Destination, target_statements, written_topics

if TYPE_CHECKING:
    from upsert_platform.formats.registered.registry import SchemaRegistry

_PREFIX: Final = "properties."
_VARIABLE: Final = re.compile(r"\$\{([\w.-]+)\}")
_LOG: Final = logging.getLogger(__name__)


def declare_matching(
    pattern: str,
    options: Mapping[str, str],
    *,
    to: Sequence[Destination] = (),
    registry: str | None = None,
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Return the name of each table to the text that declares it, for the topics that a pattern names.

    The texts leave out where systems are and how to log in: `options` complete the tables. A topic that cannot be
    declared is left out with a warning, and so are the topics that the tables themselves would write.

    Args:
        options: of Kafka tables; ``properties.bootstrap.servers`` and the login are among them.
        to: destinations that get a table and an INSERT INTO.
        registry: address of the schema registry, variables in it included.
        variables: values for ``${NAME}``.

    Raises:
        DeclarationError: no servers are given, a client property is wrong, or topics would be one table.
        EndpointError: the brokers or the registry do not answer, or refuse the login.
    """
    from upsert_platform.kafka.endpoint import KafkaEndpoint
    from upsert_platform.kafka.properties import read_properties

    if not options.get(SERVERS):
        message = f"'{SERVERS}' is not given: set it in 'kafka', or set UPSERT_KAFKA_BOOTSTRAP_SERVERS"
        raise DeclarationError([Problem(f"topics that match '{pattern}': {message}")])
    declared = {name.removeprefix(_PREFIX): text for name, text in options.items() if name.startswith(_PREFIX)}
    declared.pop(SERVERS.removeprefix(_PREFIX))
    properties, problems = read_properties(declared)
    wrong = [Problem(f"'{_PREFIX}{name}': {message}") for name, severity, message in problems if severity == "error"]
    if wrong:
        raise DeclarationError(wrong)
    endpoint = KafkaEndpoint(options[SERVERS], properties)
    cluster = Cluster(options[SERVERS], declared, registry or "")
    asked = registry_at(_value(registry, variables)) if registry else None
    named = matching(topics_of(endpoint), pattern)
    written = written_topics(named, to)
    read = [topic for topic in named if topic not in written]
    check_names(read)
    found: dict[str, str] = {}
    for topic in read:
        sample = sample_topic(endpoint, topic)
        try:
            discovery = discover_topic(sample, cluster, to=to, variables=variables, registry=asked)
        except DeclarationError as error:
            _LOG.warning("topic '%s' is left out, for it cannot be declared: %s", topic, error)
            continue
        found[discovery.table.name] = _without_endpoints(discovery, to)
    return found


def registry_at(url: str) -> SchemaRegistry:
    """Return a registry that is asked over HTTP.

    Raises:
        DeclarationError: this is no address.
    """
    from upsert_platform.core.model import Options
    from upsert_platform.core.options import read_settings
    from upsert_platform.formats.avro.options import AvroConfluentSettings
    from upsert_platform.formats.registered.registry import HttpSchemaRegistry

    settings, problems = read_settings(
        AvroConfluentSettings,
        Options({"avro-confluent.url": url}),
        subject="schema registry",
        location=SourceLocation("registry"),
    )
    if settings is None:
        raise DeclarationError(problems)
    return HttpSchemaRegistry(settings)


def _value(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def _without_endpoints(found: Discovery, to: Sequence[Destination]) -> str:
    kept = {name: text for name, text in found.table.options.items() if not name.startswith(_PREFIX)}
    table = replace(found.table, options=kept)
    return "\n".join([statement(table), *(target_statements(table, item, endpoints=False) for item in to)])
