"""The projects that a command is about: a folder that is named, or those of the working folder's code location."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from upsert_platform.changelog import lake

if TYPE_CHECKING:
    from upsert_platform.core.model import Project
    from upsert_platform.sync.binding import Binding
    from upsert_platform.sync.located import LocatedProject

SHIPPED: Final = "upsert_platform.definitions"
"""The code location that ships with the package."""


def current_location(folder: Path) -> str:
    """Return the module of the code location that the pyproject.toml of a folder declares, else the shipped one.

    Dagster reads the same settings: ``[tool.dg.project]`` for `dg`, ``[tool.dagster]`` for `dagster`.
    """
    settings = folder / "pyproject.toml"
    if not settings.is_file():
        return SHIPPED
    tools = tomllib.loads(settings.read_text("utf-8")).get("tool", {})
    project = tools.get("dg", {}).get("project", {})
    if "code_location_target_module" in project:
        return str(project["code_location_target_module"])
    if "root_module" in project:
        return f"{project['root_module']}.definitions"
    return str(tools.get("dagster", {}).get("module_name", SHIPPED))


def located_projects(project: Path | None = None) -> list[LocatedProject]:
    """Return the projects of a command, and make their lake the one of this process.

    A folder that is named, by an option or by UPSERT_PLATFORM_PROJECT, is read as the code location reads it, if it is
    one of its projects. If none is named, they are all projects of the code location that the pyproject.toml of the
    working folder declares; without one, the demo.

    Raises:
        JobRunError: the location cannot be loaded, and no folder is named.
        ClickException: its projects have several lakes, and none is named.
    """
    from upsert_platform.sync.located import LocatedProject

    named = project or (lake.project_path() if os.environ.get(lake.PROJECT_VARIABLE) else None)
    found = _of_location(named)
    if named is not None:
        found = [item for item in found if item.folder is not None and item.folder.resolve() == named.resolve()]
    roots = {item.lake.root for item in found if item.lake is not None}
    if len(roots) > 1:
        folders = ", ".join(str(item.folder) for item in found)
        raise click.ClickException(f"projects of this code location have lakes of their own; name one of {folders}")
    for root in roots:
        _use_lake(root)
    return found or [LocatedProject(project)]


def use_project(project: Path | None, *, location: str) -> None:
    """Make a folder that `--project` names the project of the shipped code location, in this process and its runs.

    Raises:
        UsageError: the code location is another one, which names its project itself.
    """
    if project is None:
        return
    if location != SHIPPED:
        raise click.UsageError(f"--project: the code location '{location}' names its project itself; leave one out")
    os.environ[lake.PROJECT_VARIABLE] = str(project.absolute())


def project_binding(project: Path | None = None) -> Binding:
    """Return the projects of a command as one, every option in place.

    Raises:
        DeclarationError: something in them cannot be used.
    """
    from upsert_platform.sync.located import joined

    return joined([item.bind(*item.load()) for item in located_projects(project)])


def deployed_project(folder: Path, project: Path | None = None) -> Project:
    """Return the declarations of a folder with the values that the code location gives its one project.

    Args:
        project: that the folder is compared with, as it is named; see `located_projects`.
    """
    from upsert_platform.sync.located import LocatedProject

    found = located_projects(project)
    values = found[0] if len(found) == 1 else LocatedProject(folder)
    return values.at(folder).load()[0]


def _of_location(named: Path | None) -> list[LocatedProject]:
    """Return the projects of the working folder's code location; none where it has none, or a named folder is not in
    the working folder.
    """
    folder = Path.cwd()
    if not (folder / "pyproject.toml").is_file() or (named is not None and not _within(named, folder)):
        return []
    module = current_location(folder)
    if module == SHIPPED:
        return []
    from upsert_platform.graph.job_run import CodeLocation, JobRunError

    try:
        return CodeLocation(module).projects()
    except JobRunError:
        if named is None:
            raise
        return []


def _within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _use_lake(root: str) -> None:
    """Makes a lake that of this process as long as the command runs."""
    before = os.environ.get(lake.HOME_VARIABLE)
    os.environ[lake.HOME_VARIABLE] = root

    def restore() -> None:
        if before is None:
            os.environ.pop(lake.HOME_VARIABLE, None)
        else:
            os.environ[lake.HOME_VARIABLE] = before

    if (context := click.get_current_context(silent=True)) is not None:
        context.call_on_close(restore)
