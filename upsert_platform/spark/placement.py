"""Refuses places where Spark could not do the work, before anything runs: each with what to do instead."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.profiles import MASTERS, Profile, SparkPlace, profile_of

_CONNECT: Final = (
    "profile 'connect' cannot be used: the client of Spark Connect needs protobuf 6.33 or newer, and the Tablestore"
    " SDK, which is installed beside it, one older than 6; and tasks count through SparkContext, which that client has"
    " not. Use 'standalone', 'yarn' or 'kubernetes'; for a session that stays open, 'upsert-platform session up'"
)


def refuse_wrong(place: SparkPlace, *, lake: str | None = None) -> None:
    """Refuses a place that cannot work.

    Args:
        lake: root of the lake, which executors have to see.

    Raises:
        EndpointError: it tells everything that is wrong, with the remedies.
    """
    found = list(problems_of(place, lake=lake))
    if found:
        raise EndpointError("; ".join(found))


def problems_of(place: SparkPlace, *, lake: str | None = None) -> Iterator[str]:
    """Everything that is wrong with a place."""
    if place.profile is Profile.CONNECT or "spark.remote" in place.given:
        yield _CONNECT
        return
    master = place.master
    if master is None and place.is_cluster:
        yield (
            f"profile '{place.profile}' needs 'spark.master' = '{MASTERS[place.profile]}': give it in the settings of"
            " the Spark resource, or in the file that UPSERT_SPARK_SETTINGS names"
        )
        return
    if master is not None and profile_of(master) is not place.profile:
        fitting = profile_of(master)
        yield (
            f"profile '{place.profile}' and 'spark.master' = '{master}' do not fit: use profile '{fitting}', or leave"
            f" the setting out (its form there is {MASTERS[place.profile]})"
        )
        return
    if not place.is_cluster:
        return
    for problem in (_deploy_mode, _of_yarn, _of_kubernetes, _driver_address, _archive):
        yield from problem(place)
    if lake is not None:
        yield from _lake(place, lake)


def _deploy_mode(place: SparkPlace) -> Iterator[str]:
    if place.settings["spark.submit.deployMode"] != "client":
        yield (
            "'spark.submit.deployMode' = 'cluster' cannot be used: the process of a run is the driver. To have it in"
            " the cluster, run Dagster's runs there (docs/cluster.md)"
        )


def _of_yarn(place: SparkPlace) -> Iterator[str]:
    if place.profile is not Profile.YARN:
        return
    named = {name: os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}
    if not any(folder and Path(folder).is_dir() for folder in named.values()):
        yield (
            "profile 'yarn' needs the cluster's configuration: name the folder with yarn-site.xml and core-site.xml in"
            " HADOOP_CONF_DIR"
        )


def _of_kubernetes(place: SparkPlace) -> Iterator[str]:
    images = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
    if place.profile is Profile.KUBERNETES and not any(place.settings.get(name) for name in images):
        yield (
            "profile 'kubernetes' needs 'spark.kubernetes.container.image': an image with this version of Spark; Python"
            " and the platform come with 'spark.archives', which 'upsert-platform package' tells"
        )


def _driver_address(place: SparkPlace) -> Iterator[str]:
    if is_on_this_machine(place):
        return
    named: tuple[tuple[str, Callable[[], str | None]], ...] = (
        ("'spark.driver.host'", lambda: place.settings.get("spark.driver.host")),
        ("'spark.driver.bindAddress'", lambda: place.settings.get("spark.driver.bindAddress")),
        ("SPARK_LOCAL_IP", lambda: os.environ.get("SPARK_LOCAL_IP")),
    )
    for name, value in named:
        address = value()
        if address and is_loopback(address):
            yield (
                f"{name} = '{address}' is an address that executors elsewhere cannot reach: leave it out, or name one"
                " of this machine that they can"
            )


def _archive(place: SparkPlace) -> Iterator[str]:
    path = place.archive
    if path is not None and ("://" not in path or path.startswith("file://")):
        local = Path(urlsplit(path).path if "://" in path else path)
        if not local.is_file():
            yield f"'spark.archives' names {path}, which is not there: make it with 'upsert-platform package {local}'"


def _lake(place: SparkPlace, lake: str) -> Iterator[str]:
    if "://" not in lake and not is_on_this_machine(place):
        yield (
            f"the lake {lake} is a folder of this machine, which executors of {place.master} do not see: keep the lake"
            " in object storage (UPSERT_PLATFORM_HOME=s3://bucket/lake), or, if every machine has that folder mounted"
            f" at that path, say so by UPSERT_PLATFORM_HOME=file://{lake}"
        )


def is_on_this_machine(place: SparkPlace) -> bool:
    """Return whether the whole cluster is: nobody elsewhere reaches a master on loopback."""
    if not place.is_cluster:
        return True
    host = urlsplit(place.master or "").hostname if place.profile is Profile.STANDALONE else None
    return host is not None and is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether a name or address leads to the machine that asks."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
