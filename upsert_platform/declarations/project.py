"""A project folder to its declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from upsert_platform.core.connector import Connector
from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Project, Table
from upsert_platform.declarations.connect import is_connect, read_connect
from upsert_platform.declarations.declared_yaml import is_declaration, read_declared_yaml
from upsert_platform.declarations.located import read_json, read_properties, read_yaml, with_variables
from upsert_platform.declarations.pipeline import Pipeline, is_pipeline
from upsert_platform.declarations.pipeline_source import Describe
from upsert_platform.declarations.validate import project_problems, without_platform_options
from upsert_platform.sql.declarations import Declarations
from upsert_platform.sql.scripts import resolve
from upsert_platform.sql.statements import read_statements
from upsert_platform.sql.variables import VARIABLES_FILES, Variables, load_variables

_NOTHING: Final = (
    "nothing is declared here: no .sql file has a CREATE TABLE. 'upsert-platform init FOLDER' writes a small project,"
    " 'upsert-platform discover --into FOLDER' declares the topics of a cluster"
)
_SUFFIXES: Final = (".sql", ".yaml", ".yml", ".properties", ".json")
_OTHER_FILES: Final = (*VARIABLES_FILES, "defs.yaml", "component.yaml", "dagster.yaml", "workspace.yaml")


def load_project(
    path: Path,
    variables: Mapping[str, str] | None = None,
    *,
    connectors: Mapping[str, Connector],
    describe: Describe | None = None,
    given: Mapping[str, str] | None = None,
    defaults: Mapping[str, Mapping[str, str]] | None = None,
    unset: Callable[[str], str] | None = None,
    discovered: Mapping[str, str] | None = None,
) -> tuple[Project, list[Problem]]:
    """Reads everything that a project folder declares, file by file in the order of their names.

    ``*.sql`` holds Flink SQL. ``*.yaml`` holds tables and inserts (`declared_yaml`) or a data ingestion
    pipeline (`pipeline`); ``*.properties`` and ``*.json`` hold configurations of the Tablestore sink
    connector for Kafka Connect (`connect`). ``variables.yaml`` gives values for ``${NAME}``.

    Args:
        path: the folder.
        variables: values for names that neither the environment nor ``variables.yaml`` sets.
        connectors: that tables may name.
        describe: asks a database for the tables that a pipeline reads; without it they stay unknown.
        given: values of variables that win over the environment.
        defaults: connector to options that the source of a pipeline gets where it declares none.
        unset: gives the value of a variable that nobody sets; such a variable is a problem without it.
        discovered: name of a table to the text that declares it, with what is written from it; a table that the folder
            declares itself wins. The folder may then be without declarations.

    Returns:
        The project, with the tables and inserts that could be read, and every problem found. Use the project only when
        no problem is an error.
    """
    if not path.is_dir():
        message = "this is not a folder: a project is a folder with .sql files that declare tables and inserts"
        return Project(str(path)), [Problem(message, SourceLocation(str(path)))]
    values, problems = load_variables(path, variables, given=given, unset=unset)
    found, pipelines = Declarations(problems=problems), list[Pipeline]()
    for file in sorted(path.iterdir()):
        if file.suffix in _SUFFIXES and file.name not in _OTHER_FILES and file.is_file():
            _read_file(file, values, found, pipelines)
    own = {table.name for table in found.tables}
    for name, text in (discovered or {}).items():
        if name not in own:
            found.add(read_statements(text, str(path / f"{name}.sql (discovered)"), values))

    def derive(tables: Mapping[str, Table]) -> Declarations:
        derived = Declarations()
        for pipeline in pipelines:
            derived.add(pipeline.declare(tables, connectors, describe=describe, defaults=defaults))
        return derived

    tell_before = [name for name, connector in connectors.items() if connector.tells_before]
    scripts, problems = resolve(found, derive=derive, tell_before=tell_before)
    declared = Project(str(path), scripts.tables, scripts.inserts)
    problems += project_problems(declared, connectors, written=scripts.mentioned, keyed=scripts.keyed)
    if not scripts.tables and not problems and discovered is None:
        problems.append(Problem(_NOTHING, SourceLocation(str(path))))
    tables = {name: without_platform_options(table) for name, table in scripts.tables.items()}
    return Project(str(path), tables, scripts.inserts), problems


def _read_file(file: Path, variables: Variables, found: Declarations, pipelines: list[Pipeline]) -> None:
    name = str(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        found.problems.append(Problem("this file is not UTF-8; save it as UTF-8", SourceLocation(name)))
        return
    if file.suffix == ".sql":
        found.add(read_statements(text, name, variables))
        return
    if file.suffix == ".properties":
        problems: list[Problem] = []
        entries = read_properties(text, name, problems)
        if is_connect(entries):
            found.problems += problems
            found.add(read_connect(entries, SourceLocation(name), variables))
        else:
            _ignored(name, found)
        return
    problems = []
    documents = (read_json if file.suffix == ".json" else read_yaml)(text, name, problems)
    if file.suffix == ".json" and documents and not any(is_connect(document.entries) for document in documents):
        _ignored(name, found)
        return
    found.problems += problems
    for document in documents:
        if is_connect(document.entries):
            found.add(read_connect(document.entries, SourceLocation(name), variables))
        elif is_pipeline(document):
            pipelines.append(Pipeline(with_variables(document, variables, found.problems)))
        elif is_declaration(document):
            found.add(read_declared_yaml(with_variables(document, variables, found.problems)))
        else:
            _ignored(name, found)


def _ignored(file: str, found: Declarations) -> None:
    message = (
        "this file is not read: it holds neither 'tables' and 'inserts', nor a pipeline ('source' and 'sink'), nor a"
        " configuration of the Tablestore sink connector"
    )
    found.problems.append(Problem(message, SourceLocation(file), "warning"))
