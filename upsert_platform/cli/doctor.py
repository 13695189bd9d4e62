"""`upsert-platform doctor`: what is wrong on this machine and with the endpoints of a project, each with its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake
from upsert_platform.cli.next_step import project_option
from upsert_platform.cli.text import printable
from upsert_platform.core.wording import counted

if TYPE_CHECKING:
    from upsert_platform.sync.binding import Binding
    from upsert_platform.sync.checkups.finding import Check, Finding

_STYLES: Final = {"ok": "green", "warning": "yellow", "fault": "bold red"}


@click.command(short_help="Look for what is wrong around a project.")
@project_option()
@click.option(
    "--timeout", default=30.0, show_default=True, type=click.FloatRange(1), help="Seconds to wait for answers."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON list.")
def doctor(project: Path | None, timeout: float, *, as_json: bool) -> None:
    """Look for what is wrong around a project, and tell what to do about it.

    Looks at Java, packages and what the Kafka client can do; at every cluster, registry and table that the project
    names: whether it answers, takes the login, and lets the user do what runs do; at clocks and disks; and at the lake:
    whether it can be written, and whether of several commits of one version just one is made. All at once; nothing
    stays behind. Ends with 1 if there is a fault; a warning is none.
    """
    from upsert_platform.cli.location import project_binding
    from upsert_platform.core.errors import DeclarationError
    from upsert_platform.sync.checkups.finding import Finding, State, run_checks

    found: list[Finding] = []
    binding = None
    try:
        binding = project_binding(project)
    except DeclarationError as error:
        found += [
            Finding("project", str(problem.location or "?"), State.FAULT, problem.message) for problem in error.problems
        ]
        told = "what it names was not looked at"
        remedy = error.hint or "correct the declarations; 'upsert-platform validate' tells the same problems"
        found.append(Finding("project", str(project or lake.project_path()), State.WARNING, told, remedy))
    else:
        found.append(Finding("project", str(project or lake.project_path()), State.OK, _declared(binding)))
    found += run_checks(_checks(binding), timeout=timeout)
    if as_json:
        click.echo(json.dumps([asdict(item) for item in found], ensure_ascii=False))
    else:
        _print(found)
    if any(item.state is State.FAULT for item in found):
        sys.exit(1)


def _declared(binding: Binding) -> str:
    return f"{counted(len(binding.project.tables), 'table')} and {counted(len(binding.project.inserts), 'insert')} fit"


def _checks(binding: Binding | None) -> list[Check]:
    from upsert_platform.sync.checkups.databases import database_checks
    from upsert_platform.sync.checkups.finding import Check
    from upsert_platform.sync.checkups.kafka import client_check, kafka_checks
    from upsert_platform.sync.checkups.lake import changelog_checks, lake_check
    from upsert_platform.sync.checkups.machine import machine_checks
    from upsert_platform.sync.checkups.stores import endpoints, store_checks

    addresses = endpoints(binding) if binding is not None else {}
    checks = [
        Check("java", "java", _java),
        Check("spark", "spark", _spark),
        *machine_checks(lake.home(), addresses),
        lake_check(lake.default_lake()),
    ]
    checks.append(client_check(binding))
    if binding is not None:
        checks += [
            *kafka_checks(binding),
            *store_checks(binding),
            *changelog_checks(binding, lake.default_lake()),
            *database_checks(binding, lake.default_lake()),
        ]
    return checks


def _java() -> Iterator[Finding]:
    from upsert_platform.spark.jars import java
    from upsert_platform.sync.checkups.finding import Finding, State

    yield Finding("java", str(java()), State.OK, "is new enough for Spark")


def _spark() -> Iterator[Finding]:
    from upsert_platform.spark.placement import problems_of
    from upsert_platform.spark.profiles import spark_place
    from upsert_platform.sync.checkups.finding import Finding, State

    place = spark_place()
    wrong = list(problems_of(place, lake=lake.home()))
    yield from (Finding("spark", place.profile, State.FAULT, told) for told in wrong)
    if not wrong:
        yield Finding("spark", place.profile, State.OK, f"sessions open at {place.master or 'this machine'}")


def _print(found: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for item in found:
        head = Text.assemble((f"{item.state:<8}", _STYLES[item.state]), (f"{item.area} ", "bold"))
        console.print(head, printable(item.subject), soft_wrap=True, sep="", end="")
        console.print(Text(": "), printable(item.told), soft_wrap=True, sep="")
        if item.remedy:
            console.print(Text("        -> "), printable(item.remedy), soft_wrap=True, sep="")
    faults = sum(item.state == "fault" for item in found)
    warnings = sum(item.state == "warning" for item in found)
    console.print(f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}, {len(found)} looked at")
