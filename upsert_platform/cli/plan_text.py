"""A plan for people: lines of a terminal, and Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from upsert_platform.cli.text import printable
from upsert_platform.proofs.plan_file import example_data

if TYPE_CHECKING:
    from upsert_platform.proofs.consumers import Consumer
    from upsert_platform.proofs.plan import ProjectPlan, TablePlan

_ESCAPED: Final = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " ", "\r": " "})


def plan_lines(plan: TablePlan) -> Iterator[str]:
    """Yield the plan of a table as lines of a terminal."""
    yield f"{plan.table}: {plan.kind.value}{'; ' + _rows(plan) if plan.rows is not None else ''}"
    for line in plan.declared:
        yield f"  {line}"
    for name in plan.rebuilds:
        yield f"  query '{name}' is computed anew"
    if plan.columns:
        yield f"  columns: {_columns(plan)}"
    if plan.reason:
        yield f"  {plan.reason}"
    for row in map(example_data, plan.rows.sample if plan.rows else ()):
        difference = f": {row['difference']}" if row.get("difference") else ""
        yield f"  {row['status']} {printable(row['key']).plain}{printable(difference).plain}"
    for consumer in plan.consumers:
        yield f"  read by {_consumer(consumer)}"
    if plan.cost.rows_written or plan.rebuilds:
        yield f"  cost: {_cost(plan)}"
    if plan.command:
        yield f"  then: {plan.command}"


def markdown_lines(plan: ProjectPlan) -> Iterator[str]:
    """Yield a plan as Markdown: a table of all tables, and a section for each that changes."""
    yield "### Plan of upsert-platform"
    yield ""
    if not plan.changes:
        yield "Nothing changes."
        return
    yield "| table | | added | changed | removed | cost |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for item in plan.tables:
        about = "about " if item.estimated else ""
        counts = [
            f"{about}{count}" if item.rows is not None else "" for count in (item.added, item.changed, item.removed)
        ]
        cost = _cost(item) if item.cost.rows_written or item.rebuilds else ""
        yield f"| {_code(item.table)} | {item.kind.value} | {' | '.join(counts)} | {cost} |"
    broken = [(item, consumer) for item in plan.tables for consumer in item.consumers if consumer.breaks]
    if broken:
        yield ""
        yield "**Breaks:**"
        yield ""
        for item, consumer in broken:
            yield f"- {_code(consumer.name)}, a consumer of {_code(item.table)}: {_escaped(consumer.breaks)}"
    for item in plan.tables:
        yield from _section(item)


def _section(plan: TablePlan) -> Iterator[str]:
    notes = [*map(_escaped, plan.declared), *(f"query {_code(name)} is computed anew" for name in plan.rebuilds)]
    if plan.columns:
        notes.append(f"columns that differ: {_escaped(_columns(plan))}")
    if plan.reason:
        notes.append(_escaped(plan.reason))
    notes += [f"read by {_escaped(_consumer(consumer))}" for consumer in plan.consumers]
    sample = plan.rows.sample if plan.rows else ()
    if not notes and not sample:
        return
    yield ""
    yield f"#### {_code(plan.table)}"
    yield ""
    for note in notes:
        yield f"- {note}"
    if not sample:
        return
    yield ""
    yield f"<details><summary>{len(sample)} of the rows that differ</summary>"
    yield ""
    yield "| | key | difference |"
    yield "| --- | --- | --- |"
    for row in map(example_data, sample):
        cells = (printable(row[name]).plain if row.get(name) else "" for name in ("key", "difference"))
        yield f"| {row['status']} | {' | '.join(_code(cell) if cell else '' for cell in cells)} |"
    yield ""
    yield "</details>"


def _rows(plan: TablePlan) -> str:
    about = "about " if plan.estimated else ""
    return f"{about}{plan.added} rows added, {plan.changed} changed, {plan.removed} removed"


def _columns(plan: TablePlan) -> str:
    about = "about " if plan.estimated else ""
    return ", ".join(f"{name} in {about}{count} rows" for name, count in plan.columns.items())


def _cost(plan: TablePlan) -> str:
    cost = plan.cost
    requests = f" in {cost.requests} requests" if cost.requests is not None else ""
    return f"{cost.rows_read} rows read, {cost.rows_written} written{requests}, {cost.seconds} s to compute and compare"


def _consumer(consumer: Consumer) -> str:
    reads = f" reads {', '.join(consumer.reads)}" if consumer.reads else ""
    columns = f", for its {', '.join(consumer.columns)}" if consumer.columns else ""
    broken = f"; BREAKS: {consumer.breaks}" if consumer.breaks else ""
    return f"'{consumer.name}'{reads}{columns}{broken}"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)


def _code(text: str) -> str:
    """Return a text as code in a cell of a table: backticks inside it become apostrophes."""
    return f"`{text.replace('`', chr(39)).translate(_ESCAPED).replace('&lt;', '<')}`"
