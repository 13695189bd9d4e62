"""A project folder to its declarations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from upsert_platform.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.model import Project
from upsert_platform.sql.scripts import read_scripts
from upsert_platform.sql.validate import project_problems, without_platform_options
from upsert_platform.sql.variables import load_variables


def load_project(path: Path, variables: Mapping[str, str] | None = None) -> tuple[Project, list[Problem]]:
    """Reads everything that a project folder declares.

    ``*.sql`` files are read in the order of their names; ``variables.yaml`` gives values for ``${NAME}``.

    Args:
        path: the folder.
        variables: values for names that neither the environment nor ``variables.yaml`` sets.

    Returns:
        The project, with the tables and inserts that could be read, and every problem found. Use the project only when
        no problem is an error.
    """
    if not path.is_dir():
        message = "this is no folder: a project is a folder with .sql files that declare tables and inserts"
        return Project(str(path)), [Problem(message, SourceLocation(str(path)))]
    values, problems = load_variables(path, variables)
    texts: dict[str, str] = {}
    for file in sorted(path.glob("*.sql")):
        try:
            texts[str(file)] = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            problems.append(Problem("this file is not UTF-8; save it as UTF-8", SourceLocation(str(file))))
    scripts, faults = read_scripts(texts, values)
    problems += faults
    tables = {name: without_platform_options(table) for name, table in scripts.tables.items()}
    project = Project(str(path), tables, scripts.inserts)
    problems += project_problems(Project(str(path), scripts.tables, scripts.inserts), written=scripts.mentioned)
    if not scripts.tables and not problems:
        problems.append(Problem("nothing is declared here: no .sql file has a CREATE TABLE", SourceLocation(str(path))))
    return project, problems


def require_project(path: Path, variables: Mapping[str, str] | None = None) -> tuple[Project, list[Problem]]:
    """As `load_project`, for use: the problems returned are warnings.

    Raises:
        DeclarationError: there are errors; it carries all of them.
    """
    project, problems = load_project(path, variables)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise DeclarationError(errors)
    return project, problems
