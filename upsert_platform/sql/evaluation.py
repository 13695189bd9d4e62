"""Running the Spark SQL of expressions: the session settings and the functions that they were written for."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.types import arrow_type, spark_type
from upsert_platform.core.user_functions import SIGNATURE, STOPS, Signature, called_functions
from upsert_platform.sql.functions.json import CHECK, EXISTS, QUERY, VALUE
from upsert_platform.sql.user_functions import is_below

if TYPE_CHECKING:
    from types import ModuleType

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
_INSTALLED: Final = {"site-packages", "dist-packages", "upsert_platform"}
"""Folders of modules that are in the environment of workers."""
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
    from pyspark import cloudpickle
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    from upsert_platform.sql.user_batches import Batches

    for name, target in called.items():
        module = importlib.import_module(target.rpartition(".")[0])
        function = getattr(module, target.rpartition(".")[2])
        signature: Signature = getattr(function, SIGNATURE)
        stops = name.startswith(STOPS)
        kinds = tuple(arrow_type(kind) for kind in signature.arguments)
        batches = Batches(function, target, kinds, arrow_type(signature.result), stops)

        def batch(*columns: Any, batches: Batches = batches) -> Any:
            return batches(*columns)

        batch.__annotations__ = {}
        declared = spark_type(signature.result)
        declared = declared if stops else f"struct<value: {declared}, reason: string>"
        for item in _of_project(module):
            cloudpickle.register_pickle_by_value(item)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="It is preferred to specify type hints")
            own = arrow_udf(batch, declared, ArrowUDFType.SCALAR)
            spark.udf.register(name, own if signature.deterministic else own.asNondeterministic())


def _of_project(module: ModuleType) -> list[ModuleType]:
    """The modules that were loaded from the folder of a module, itself among them, if it is not an installed one."""
    levels = module.__name__.count(".") + (1 if getattr(module, "__path__", None) else 0)
    folder = Path(module.__file__ or "").resolve().parents[levels]
    below = [item for item in list(sys.modules.values()) if is_below(item, folder)]
    return [item for item in below if not _INSTALLED & set(Path(item.__file__ or "").parts)]


def _register(spark: SparkSession, text: str) -> None:
    """Makes the functions of `json_reading` known to a session, once, where a text calls any of them."""
    if not any(name in text for name in (VALUE, QUERY, EXISTS, CHECK)) or spark.catalog.functionExists(CHECK):
        return
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    from upsert_platform.sql import json_reading as reading

    found: list[tuple[str, Any, str, str]] = [
        (VALUE, reading.read_value, "found", _FOUND),
        (QUERY, reading.read_query, "found", _FOUND),
        (EXISTS, reading.read_exists, "text", "string"),
        (CHECK, reading.check, "boolean", "boolean"),
    ]
    for name, function, kind, declared in found:
        batch = reading.over_batches(function, kind)
        # Spark infers a kind from hints, and knows none for any number of columns; it says that hints are preferred.
        batch.__annotations__ = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="It is preferred to specify type hints")
            spark.udf.register(name, arrow_udf(batch, declared, ArrowUDFType.SCALAR))
