"""A Spark session of another process: a writer that can be killed in a second needs no JVM of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"


def way_to(spark: SparkSession) -> Mapping[str, str]:
    """Environment variables with which a process finds the session."""
    parameters = spark.sparkContext._gateway.gateway_parameters
    return {_PORT: str(parameters.port), _SECRET: str(parameters.auth_token)}


def attach() -> SparkSession | None:
    """The session that the environment leads to; None when it leads to none. Not to be stopped."""
    if _PORT not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    session = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, session)
