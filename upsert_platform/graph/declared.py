"""Metadata of an asset's declaration: its location, and a link to it."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import dagster as dg

from upsert_platform.core.errors import SourceLocation


def declared_at(location: SourceLocation, project: str) -> str:
    """A place in words, relative to the project: ``users.sql:12``."""
    path = Path(location.file)
    try:
        path = path.absolute().relative_to(Path(project).absolute())
    except ValueError:
        path = Path(path.name)
    return str(SourceLocation(str(path), location.line))


def version_of_text(*texts: str) -> str:
    """The code version of an asset: a digest of the declaration that it follows from."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def code_references(*locations: SourceLocation) -> dict[str, Any]:
    """Metadata that leads from an asset to the files that declare it; empty where there is no such file."""
    places = [location for location in dict.fromkeys(locations) if Path(location.file).is_file()]
    if not places:
        return {}
    with warnings.catch_warnings():
        # The only links from an asset to its declaration are marked beta.
        warnings.simplefilter("ignore", dg.BetaWarning)
        found: list[dg.LocalFileCodeReference | dg.UrlCodeReference] = [
            dg.LocalFileCodeReference(
                file_path=str(Path(place.file).absolute()), line_number=place.line or None, label=Path(place.file).name
            )
            for place in places
        ]
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=found)}
