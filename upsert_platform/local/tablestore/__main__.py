"""``python -m upsert_platform.local.tablestore``: one instance in the foreground, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import click
from pydantic import SecretStr

SECRET_VARIABLE = "UPSERT_TABLESTORE_ACCESS_KEY_SECRET"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of the data.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free port.")
@click.option("--instance", default="local", show_default=True, help="Name of the instance.")
@click.option("--access-key-id", required=True, help=f"The secret is read from {SECRET_VARIABLE}.")
@click.option("--drop", is_flag=True, help="Answer batch writes without storing them, for benchmarks of clients.")
@click.option("--fault", "faults", multiple=True, help="Rule of a fault, such as error:code=OTSServerBusy,times=3.")
@click.option("--seed", type=int, default=None, help="Seed of the chance with which faults strike.")
@click.option("--max-tables", type=click.IntRange(1), default=64, show_default=True, help="Tables of the instance.")
@click.option(
    "--synchronous",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="full: an answered write survives a power cut; normal: the end of the process.",
)
def main(
    *,
    data: Path,
    host: str,
    port: int,
    instance: str,
    access_key_id: str,
    drop: bool,
    faults: tuple[str, ...],
    seed: int | None,
    max_tables: int,
    synchronous: str,
) -> None:
    """Serve one local Tablestore instance."""
    secret = os.environ.get(SECRET_VARIABLE, "")
    if not secret:
        raise click.UsageError(f"set {SECRET_VARIABLE} to the access key secret that clients use")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The SDK, of which only the message classes are used, warns at import about encoders that it lacks.
    logging.getLogger("tablestore").setLevel(logging.ERROR)
    from upsert_platform.local.tablestore.server import ServerSettings, run

    try:
        settings = ServerSettings(
            data=data,
            host=host,
            port=port,
            instance=instance,
            access_key_id=access_key_id,
            access_key_secret=SecretStr(secret),
            drop=drop,
            faults=faults,
            seed=seed,
            max_tables=max_tables,
            synchronous=synchronous,
        )
        asyncio.run(run(settings, lambda endpoint: click.echo(f"tablestore '{instance}' listens on {endpoint}")))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot serve on {host}:{port} with data in {data}: {error}") from None


if __name__ == "__main__":
    main()
