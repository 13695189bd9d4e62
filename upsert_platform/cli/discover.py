"""`upsert-platform discover`: topics of a cluster, and declarations of them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.text import console_for, printable
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.discovery.discover import Discovery
    from upsert_platform.discovery.targets import Destination
    from upsert_platform.kafka.endpoint import KafkaEndpoint

_SERVERS: Final = "UPSERT_KAFKA_BOOTSTRAP_SERVERS"
_REGISTRY: Final = "UPSERT_SCHEMA_REGISTRY_URL"
_VARIABLE: Final = re.compile(r"\$\{([\w.-]+)\}")
_SECRET: Final = re.compile(r"password|secret|jaas|token", re.IGNORECASE)


@click.command(short_help="List topics with their shapes, and declare them.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--match", "pattern", help="Topics whose names this pattern matches: 'shop.*'.")
@click.option("--into", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write a file per topic here.")
@click.option(
    "--to",
    "destinations",
    multiple=True,
    type=click.Choice(["tablestore", "maxcompute", "postgres", "upsert-kafka"]),
    help="Also declare a table there, and the INSERT that fills it.",
)
@click.option("--bootstrap-servers", "servers", default=f"${{{_SERVERS}}}", show_default=True, help="Brokers to ask.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Client property; secrets as ${VARIABLE}."
)
@click.option("--registry", help=f"Address of the schema registry.  [default: ${{{_REGISTRY}}}, if it is set]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a topic, with its declaration.")
def discover(
    topics: Sequence[str],
    pattern: str | None,
    folder: Path | None,
    destinations: Sequence[Destination],
    servers: str,
    properties: Sequence[str],
    registry: str | None,
    *,
    as_json: bool,
) -> None:
    """Look at TOPICs (at all of the cluster, if none is named) and say what their keys and values are.

    At most 1,000 records of each topic are read, of the beginning and the end of its partitions; schemas come from the
    registry where records name one. For one TOPIC its declaration is printed. With --into each topic is declared in a
    file of the folder; a file that is there is left as it is. A declaration decodes the records that were looked at, or
    says which it does not; what may be meant otherwise has a comment.

    Ends with 1 if no topic is found, or every file is there already.
    """
    from upsert_platform.discovery.declare_matching import registry_at
    from upsert_platform.discovery.discover import discover_topic, matching
    from upsert_platform.discovery.sample import sample_topic, topics_of
    from upsert_platform.discovery.table import Cluster, check_names

    declared = _properties(properties)
    if registry is None and _REGISTRY in _known():
        registry = f"${{{_REGISTRY}}}"
    endpoint = _endpoint(_value(servers), {name: _value(text) for name, text in declared.items()})
    cluster = Cluster(servers, declared, registry or "")
    wanted = list(topics)
    if pattern is not None or not topics:
        there = topics_of(endpoint)
        wanted += [name for name in (matching(there, pattern) if pattern else there) if name not in wanted]
    if not wanted:
        what = f"no topic matches '{pattern}'" if pattern else "there is no topic"
        raise click.ClickException(f"{what} on {endpoint.servers}; name other brokers with --bootstrap-servers")
    if folder is not None:
        check_names(wanted)  # a file per table
    asked = registry_at(_value(registry)) if registry else None
    found: list[Discovery] = []
    for topic in wanted:
        sample = sample_topic(endpoint, topic)
        found.append(discover_topic(sample, cluster, to=destinations, variables=_known(), registry=asked))
        if as_json:
            click.echo(json.dumps(_data(found[-1]), ensure_ascii=False))
    if folder is not None:
        _write(found, folder, destinations, quiet=as_json)
    elif not as_json and len(topics) == 1 and len(found) == 1:
        click.echo(found[0].text, nl=False)
    elif not as_json:
        _show(found, destinations)


def _known() -> Mapping[str, str]:
    import os

    return {**lake.local_variables(lake.home()), **os.environ}


def _value(text: str) -> str:
    """A text with the values of its variables."""
    known = _known()

    def put(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise click.ClickException(
                f"variable ${{{match[1]}}} is not set: 'upsert-platform local up' sets those of local servers; else"
                " export it, or name the brokers with --bootstrap-servers"
            )
        return known[match[1]]

    return _VARIABLE.sub(put, text)


def _properties(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="'--property'")
        if _SECRET.search(name) and not _VARIABLE.search(value):
            raise click.BadParameter(
                f"'{name}' is a secret, which no declaration holds: export a variable, and give '{name}=${{NAME}}'",
                param_hint="'--property'",
            )
        found[name.strip().removeprefix("properties.")] = value
    return found


def _endpoint(servers: str, properties: Mapping[str, str]) -> KafkaEndpoint:
    from upsert_platform.kafka.endpoint import KafkaEndpoint
    from upsert_platform.kafka.properties import read_properties

    found, problems = read_properties(properties)
    for name, severity, message in problems:
        if severity == "error":
            raise click.BadParameter(f"'{name}': {message}", param_hint="'--property'")
    return KafkaEndpoint(servers, found)


def _write(found: Sequence[Discovery], folder: Path, destinations: Sequence[Destination], *, quiet: bool) -> None:
    from upsert_platform.discovery.targets import target_name

    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for item in found:
        path = folder / f"{item.table.name}.sql"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(item.text)
        except FileExistsError:
            click.echo(f"kept {path}: it is there already; delete it to have the topic declared anew", err=True)
            continue
        written += 1
        if not quiet:
            looked, decoded = len(item.table.sample.records), item.proof.decoded
            click.echo(f"wrote {path}: {decoded} of {counted(looked, 'record')} decode")
            for doubt in item.doubts:
                click.echo(f"  doubtful: {doubt}")
    if not written:
        sys.exit(1)
    if not quiet:
        place = shlex.quote(str(folder))
        click.echo(f"next: upsert-platform sync --project {place}")
        if destinations:
            name = target_name(found[0].table, destinations[0])
            click.echo(f"then: upsert-platform peek {name} --project {place}")


def _show(found: Sequence[Discovery], destinations: Sequence[str]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic", no_wrap=True)
    for heading in ("key", "value"):
        table.add_column(heading, overflow="fold")
    table.add_column("records", justify="right")
    table.add_column("doubts", justify="right")
    for item in found:
        cells = [_side(item, "key"), _side(item, "value")]
        table.add_row(
            printable(item.table.sample.topic), *cells, str(item.table.sample.offsets), str(len(item.doubts) or "")
        )
    console_for(table).print(table)
    to = "".join(f" --to {name}" for name in destinations)
    click.echo(f"next: upsert-platform discover TOPIC shows a declaration; discover{to} --into FOLDER writes them all")


def _side(item: Discovery, side: str) -> Any:
    shape = item.table.key if side == "key" else item.table.value
    names = ", ".join(_names(shape.names))
    return printable(f"{shape.format}: {names}" if shape.format else "none")


def _names(names: Sequence[str]) -> Iterator[str]:
    yield from names[:4]
    if len(names) > 4:
        yield f"{len(names) - 4} more"


def _data(item: Discovery) -> dict[str, Any]:
    table = item.table
    return {
        "topic": table.sample.topic,
        "partitions": table.sample.partitions,
        "offsets": table.sample.offsets,
        "looked_at": len(table.sample.records),
        "decoded": item.proof.decoded,
        "table": table.name,
        "primary_key": list(table.primary_key),
        "key_format": table.key.format,
        "value_format": table.value.format,
        "columns": [{"name": column.name, "type": str(column.type), "doubt": column.doubt} for column in table.columns],
        "doubts": item.doubts,
        "declaration": item.text,
    }
