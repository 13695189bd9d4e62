"""The machine: packages, room on its disks, and its clock beside those of the services."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

from upsert_platform.changelog.tables import local_path
from upsert_platform.core.packages import installed_extras
from upsert_platform.sync.checkups.finding import Check, Finding, State

LEAST_FREE: Final = 1 << 30
"""Bytes below which a disk is a fault; below five times as many it is a warning."""
CLOCK_FAULT: Final = 300.0
CLOCK_WARNING: Final = 30.0
"""Seconds by which this machine's clock may differ: services refuse requests that were signed 15 minutes off."""
_ANSWER_SECONDS: Final = 5.0
_PACKAGE: Final = "upsert-platform"


def machine_checks(root: str, addresses: Mapping[str, str]) -> list[Check]:
    """Checks of this machine.

    Args:
        root: of the lake.
        addresses: of services that speak HTTP, and what they belong to.
    """
    folders = {tempfile.gettempdir(): "temporary files of Spark"}
    local = local_path(root)
    if local is not None:
        folders[local] = "the lake"
    checks = [Check("versions", _PACKAGE, _versions)]
    checks += [Check("disk", folder, partial(disk, folder, purpose)) for folder, purpose in folders.items()]
    return checks + [Check("clock", url, partial(clock, url)) for url in addresses]


def _versions() -> Iterator[Finding]:
    """Packages that this one needs, against what is installed."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in metadata.requires(_PACKAGE) or ()]
    except metadata.PackageNotFoundError:
        remedy = "install it with pip, so that its command and its requirements are known"
        yield Finding("versions", _PACKAGE, State.WARNING, "is not installed as a package", remedy)
        return
    wrong, right, extras = [], 0, ("", *installed_extras())
    for item in wanted:
        if item.marker is not None and not any(item.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            found = metadata.version(item.name)
        except metadata.PackageNotFoundError:
            found = "none"
        if found == "none" and item.marker is not None:
            continue  # part of an extra, of which the module that a system needs is there
        if found == "none" or not item.specifier.contains(found, prereleases=True):
            wrong.append(f"{item.name} is {found}, wanted {item.specifier or 'any'}")
        else:
            right += 1
    if wrong:
        remedy = "install the versions of requirements.lock into an environment of its own"
        yield Finding("versions", _PACKAGE, State.FAULT, "; ".join(wrong), remedy)
    else:
        yield Finding("versions", _PACKAGE, State.OK, f"{metadata.version(_PACKAGE)}; {right} packages fit")


def disk(folder: str, purpose: str) -> Iterator[Finding]:
    """Room where a folder lies, or will lie."""
    present = next(path for path in (Path(folder), *Path(folder).parents) if path.exists())
    free = shutil.disk_usage(present).free
    told = f"{free / 2**30:.1f} GiB free for {purpose}"
    state = State.FAULT if free < LEAST_FREE else State.WARNING if free < 5 * LEAST_FREE else State.OK
    remedy = "" if state is State.OK else "make room, run job 'compact', or move the folder to a larger disk"
    yield Finding("disk", folder, state, told, remedy)


def clock(url: str) -> Iterator[Finding]:
    """This machine's clock beside a service's: its answers carry a Date header, whatever they say."""
    import requests

    address = url if "://" in url else f"http://{url}"
    try:
        began = time.time()
        with requests.get(address, timeout=_ANSWER_SECONDS, stream=True, allow_redirects=False) as answer:
            told = answer.headers.get("Date", "")
        ended = time.time()
        theirs = parsedate_to_datetime(told).timestamp()
    except requests.RequestException:
        yield Finding("clock", url, State.WARNING, "not compared: no answer")
        return
    except ValueError:
        yield Finding("clock", url, State.WARNING, "not compared: the answer has no Date")
        return
    # The header has whole seconds, and the answer was made some time between the two readings.
    off = max(0.0, theirs - ended, began - (theirs + 1))
    state = State.FAULT if off >= CLOCK_FAULT else State.WARNING if off >= CLOCK_WARNING else State.OK
    remedy = "" if state is State.OK else "set the clock by NTP (timedatectl set-ntp true)"
    yield Finding("clock", url, state, f"differs by {off:.0f} s", remedy)
