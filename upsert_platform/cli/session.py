"""The Spark session of a command that needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(doing: str) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A Spark session, and what tells a line, while the terminal shows that something is going on.

    The session is closed at the end, unless it was there before, or is the warm one.

    Args:
        doing: what is shown: ``comparing orders``.
    """
    from pyspark.sql import SparkSession
    from rich.console import Console

    from upsert_platform.changelog import lake
    from upsert_platform.spark.warm_session import close_session, session_for_run

    console = Console(highlight=False, stderr=True)
    if not console.is_terminal:  # where no spinner is shown
        console.print(f"{doing}: Spark takes some seconds")
    with console.status("opening a Spark session") as spinner:
        before = SparkSession.getActiveSession()
        spark = before or session_for_run(lake=lake.home(), tell=console.print)
        try:
            spinner.update(doing)
            yield spark, console.print
        finally:
            if before is None:
                spinner.update("leaving the Spark session")
                close_session(spark)
