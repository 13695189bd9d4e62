"""`upsert-platform package`: Python and the platform for executors that have neither."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Pack Python and the platform for executors.")
@click.argument(
    "archive", required=False, default="upsert-platform.tar.gz", type=click.Path(path_type=Path, dir_okay=False)
)
def package(archive: Path) -> None:
    """Write ARCHIVE (upsert-platform.tar.gz), which the executors of a cluster unpack and run Python from.

    It holds this interpreter, the platform and the packages that its tasks need, in the versions that are installed
    here. Spark is told of it by the setting that is printed. Executors need the same distribution of Linux, or a newer
    release of it, and the same processor.
    """
    from upsert_platform.spark.packed_environment import pack_environment
    from upsert_platform.spark.profiles import ENVIRONMENT

    packed = pack_environment(archive)
    click.echo(
        f"{packed.size / 1e6:.0f} MB: Python, and {packed.distributions} packages with {packed.files} files", err=True
    )
    click.echo(f"spark.archives={packed.path.absolute()}#{ENVIRONMENT}")
