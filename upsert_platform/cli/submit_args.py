"""`upsert-platform submit-args`: the Spark settings of a profile, as arguments of spark-submit."""

from __future__ import annotations

import shlex
import sys

import click

from upsert_platform.changelog import lake
from upsert_platform.spark.profiles import Profile


@click.command("submit-args", short_help="Print the Spark settings of a profile.")
@click.argument("profile", required=False, metavar="[PROFILE]", type=click.Choice([item.value for item in Profile]))
def submit_args(profile: str | None) -> None:
    """Print the settings with which sessions of PROFILE open, as arguments of spark-submit, one a line.

    PROFILE is local, standalone, yarn or kubernetes; if left out, UPSERT_SPARK_PROFILE, or what 'spark.master' in the
    file that UPSERT_SPARK_SETTINGS names belongs to. Values of secrets are not shown. Ends with 1, and says why, if no
    session could open with them, or its executors could not see the lake.
    """
    from upsert_platform.spark.placement import problems_of
    from upsert_platform.spark.profiles import spark_place, without_secrets
    from upsert_platform.spark.session import settings_of

    place = spark_place(profile=profile)
    for name, value in without_secrets(settings_of(place)).items():
        click.echo(f"--conf {shlex.quote(f'{name}={value}')}")
    if place.is_cluster:
        click.echo(f"PYSPARK_PYTHON={place.python}", err=True)
    wrong = list(problems_of(place, lake=lake.home()))
    for told in wrong:
        click.echo(f"error: {told}", err=True)
    if wrong:
        sys.exit(1)
