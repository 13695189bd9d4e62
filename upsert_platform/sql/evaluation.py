"""Running the Spark SQL of expressions: the session settings and the functions that they were written for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.types import spark_type
from upsert_platform.core.user_functions import called_functions
from upsert_platform.sql.functions.json import CHECK, EXISTS, QUERY, VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS: Final = {
    # Flink's numbers wrap or saturate, and casts of texts are checked by the expressions themselves.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    # ENCODE and DECODE write a sign of replacement for what the character set does not have, as Java does.
    "spark.sql.legacy.codingErrorAction": "true",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
}
_FOUND: Final = "struct<value: string, fate: string>"


def flink_sql(spark: SparkSession, text: str) -> DataFrame:
    """The frame of a query that holds expressions of `expressions.render`.

    Spark binds an expression to the settings of the session when it is analysed, which is here: the frame keeps them,
    whatever the session has when it runs.
    """
    _register(spark, text)
    _register_own(spark, text)
    with _settings(spark):
        return spark.sql(text)


def prepared(spark: SparkSession, texts: Iterable[str] = ()) -> SparkSession:
    """A session that evaluates expressions of `expressions.render` wherever they are put, from now on.

    Args:
        texts: the expressions, which may call functions of the project; those of the platform are known in any case.
    """
    _register(spark, CHECK)
    _register_own(spark, " ".join(texts))
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


def _register_own(spark: SparkSession, text: str) -> None:
    """Makes the functions of users that a text calls known to a session.

    A session may have outlived the code that it knows, so they are made known each time. The modules of a project go to
    the workers with the functions; installed ones are there.
    """
    called = called_functions(text)
    if not called:
        return
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    from upsert_platform.sql.user_batches import REASON, VALUE, Batches

    for name, target in called.items():
        batches, signature = Batches.of(name, target)

        def batch(*columns: Any, batches: Batches = batches) -> Any:
            return batches(*columns)

        batch.__annotations__ = {}
        declared = spark_type(signature.result)
        declared = declared if batches.stops else f"struct<{VALUE}: {declared}, {REASON}: string>"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="It is preferred to specify type hints")
            own = arrow_udf(batch, declared, ArrowUDFType.SCALAR)
            spark.udf.register(name, own if signature.deterministic else own.asNondeterministic())


def _register(spark: SparkSession, text: str) -> None:
    """Makes the functions of `json_reading` known to a session, once, where a text calls any of them."""
    if not any(name in text for name in (VALUE, QUERY, EXISTS, CHECK)) or spark.catalog.functionExists(CHECK):
        return
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    from upsert_platform.sql.json_reading import JsonCalls

    for name, reader, declared in (
        (VALUE, "value", _FOUND),
        (QUERY, "query", _FOUND),
        (EXISTS, "exists", "string"),
        (CHECK, "check", "boolean"),
    ):
        read = JsonCalls(reader)

        def batch(*columns: Any, read: JsonCalls = read) -> Any:
            return read(*columns)

        # Spark infers a kind from hints, and knows none for any number of columns; it says that hints are preferred.
        batch.__annotations__ = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="It is preferred to specify type hints")
            spark.udf.register(name, arrow_udf(batch, declared, ArrowUDFType.SCALAR))
