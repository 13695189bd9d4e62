"""Running the Spark SQL of expressions: the session settings and the functions that they were written for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS: Final = {
    # Flink's numbers wrap or saturate, and casts of texts are checked by the expressions themselves.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
}
_FOUND: Final = "struct<value: string, fate: string>"


def flink_sql(spark: SparkSession, text: str) -> DataFrame:
    """The frame of a query that holds expressions of `expressions.render`.

    Spark binds an expression to the settings of the session when it is analysed, which is here: the frame keeps them,
    whatever the session has when it runs.
    """
    _register(spark)
    with _settings(spark):
        return spark.sql(text)


def prepared(spark: SparkSession) -> SparkSession:
    """A session that evaluates expressions of `expressions.render` wherever they are put, from now on."""
    _register(spark)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    return spark


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def _register(spark: SparkSession) -> None:
    """Makes the functions of `json_reading` known to a session, once."""
    from upsert_platform.sql.functions import json as names

    if spark.catalog.functionExists(names.CHECK):
        return
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    from upsert_platform.sql import json_reading as reading

    found: list[tuple[str, Any, str, str]] = [
        (names.VALUE, reading.read_value, "found", _FOUND),
        (names.QUERY, reading.read_query, "found", _FOUND),
        (names.EXISTS, reading.read_exists, "text", "string"),
        (names.CHECK, reading.check, "boolean", "boolean"),
    ]
    for name, function, kind, declared in found:
        batch = reading.over_batches(function, kind)
        # Spark infers a kind from hints, and knows none for any number of columns; it says that hints are preferred.
        batch.__annotations__ = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="It is preferred to specify type hints")
            spark.udf.register(name, arrow_udf(batch, declared, ArrowUDFType.SCALAR))
