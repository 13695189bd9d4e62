"""`upsert-platform setup`: what an installed package needs beside itself."""

from __future__ import annotations

import click


@click.command(short_help="Fetch jars, and prepare DAGSTER_HOME.")
def setup() -> None:
    """Fetch what the platform needs beside its Python packages; quick when it is all there.

    That is: jars of the local Kafka broker, each checked against a pinned SHA-256, and an archive of Spark's classes
    with which sessions start sooner, both in UPSERT_PLATFORM_CACHE (~/.cache/upsert_platform); and a dagster.yaml in
    DAGSTER_HOME, or in the folder 'dagster' of the lake, where there is none. Other jars are fetched by the first
    command that needs them. Java 17 or newer has to be installed.
    """
    import subprocess

    from rich.console import Console

    from upsert_platform.demo.instance import dagster_home
    from upsert_platform.spark import jars
    from upsert_platform.spark.train_archive import write_archive

    click.echo(f"Java: {jars.java()}")
    waits = Console(stderr=True)
    with waits.status("fetching jars of the Kafka broker"):
        folder = jars.kafka_broker_jars()[0].parent
    click.echo(f"jars of the Kafka broker: {folder}")
    try:
        with waits.status("opening Spark once, for the archive of its classes"):
            archive = write_archive()
        click.echo(f"archive of Spark's classes: {archive}")
    except (subprocess.SubprocessError, OSError) as error:
        click.echo(f"archive of Spark's classes: not written, sessions open without it, later: {error}", err=True)
    click.echo(f"settings of Dagster: {dagster_home() / 'dagster.yaml'}")
