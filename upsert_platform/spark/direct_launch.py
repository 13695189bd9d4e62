"""The command that starts the JVM of a session, as ``spark-submit`` would put it together.

``spark-submit`` runs four programs to find it, the last a JVM that opens every jar: a third of what the JVM takes to
start. Where nothing but the platform's own settings goes into the command it is put together here, from the options
that Spark's launcher gave when the machine was set up (`write_launch_options`). In every other case (configuration
files, variables or options of the user) there is none, and ``spark-submit`` is asked.

MLlib's jar is left out unless the program uses it: each session registers functions for MLlib's vectors, for which
Scala reads its own signatures of those classes, and that takes as long as all the rest of opening a session.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.class_archive import archive_file, spark_folder
from upsert_platform.spark.jars import java

_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
_SHELL: Final = "pyspark-shell"
_FIRST_JAR: Final = "slf4j-api-"
"""Spark's launcher names it before all others."""
_MLLIB: Final = "spark-mllib_"
_OF_USERS: Final = (
    "HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_DAEMON_JAVA_OPTS", "SPARK_DIST_CLASSPATH", "SPARK_DRIVER_MEMORY",
    "SPARK_JAVA_OPTS", "SPARK_MEM", "SPARK_PREPEND_CLASSES", "SPARK_REMOTE", "SPARK_SUBMIT_OPTS",
    "SPARK_SUBMIT_LIBRARY_PATH", "YARN_CONF_DIR",
)  # fmt: skip
"""Variables that change the command that Spark's launcher makes."""
_SETTINGS_OF_USERS: Final = (
    "spark.driver.extraClassPath", "spark.driver.defaultExtraClassPath", "spark.driver.extraLibraryPath",
    "spark.remote", "spark.submit.deployMode",
)  # fmt: skip
"""Settings that change it otherwise than by memory and Java options."""
_SECONDS: Final = 60


def launch_command(settings: Mapping[str, str], arguments: Sequence[str], *, mllib: bool) -> list[str] | None:
    """Return the command of the JVM, or None where ``spark-submit`` has to be asked.

    Args:
        settings: of the session.
        arguments: of ``spark-submit``, without options of the user.
        mllib: whether the session has MLlib's classes whatever this program has imported.
    """
    options = _options_file()
    if not options.is_file() or not _is_plain(settings):
        return None
    memory = settings.get("spark.driver.memory", "1g")
    words = (settings.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra"))
    own = [word for text in words for word in shlex.split(text)]
    path = class_path(mllib=mllib or uses_mllib())
    launcher: list[str] = json.loads(options.read_text("utf-8"))
    return [str(java()), "-cp", path, f"-Xmx{memory}", *own, *launcher, _MAIN, *arguments]


def launch_environment() -> dict[str, str]:
    """Return the variables that ``spark-submit`` adds for the JVM and the workers that it starts."""
    home = str(spark_folder())
    return {
        "SPARK_HOME": home, "SPARK_CONF_DIR": str(Path(home) / "conf"), "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13", "PYTHONHASHSEED": "0",
    }  # fmt: skip


def uses_mllib() -> bool:
    """Return whether this program has imported PySpark's MLlib."""
    return "pyspark.ml" in sys.modules or "pyspark.mllib" in sys.modules


def class_path(*, mllib: bool) -> str:
    """Return the class path: MLlib last, so that it begins with the one of the archive of classes."""
    spark = spark_folder()
    jars = sorted((spark / "jars").glob("*.jar"), key=lambda jar: (_place(jar.name), jar.name))
    return os.pathsep.join(str(item) for item in (spark / "conf", *(j for j in jars if mllib or not _is_mllib(j))))


def write_launch_options() -> None:
    """Write down the options that Spark's launcher gives to every JVM.

    Raises:
        EndpointError: the launcher failed.
    """
    home = spark_folder()
    known = {name: value for name, value in os.environ.items() if name not in _OF_USERS}
    done = subprocess.run(
        [str(java()), "-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main", _MAIN, _SHELL],
        env={**known, **launch_environment()}, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    words = [word.strip("\n") for word in done.stdout.split("\0")]
    if done.returncode or _MAIN not in words or "-cp" not in words:
        raise EndpointError(f"Spark's launcher told no command (status {done.returncode}): {done.stderr[-500:]}")
    given = words[words.index("-cp") + 2 : words.index(_MAIN)]
    _options_file().write_text(json.dumps([word for word in given if not word.startswith("-Xmx")]), "utf-8")


def _options_file() -> Path:
    """Beside the archive of classes, which has a name of its own for each Java and each PySpark."""
    return archive_file().with_suffix(".options")


def _is_plain(settings: Mapping[str, str]) -> bool:
    """Return whether Spark's launcher would find nothing but the settings."""
    home = spark_folder()
    if any(os.environ.get(name) for name in _OF_USERS) or any(name in settings for name in _SETTINGS_OF_USERS):
        return False
    return os.environ.get("SPARK_HOME", str(home)) == str(home) and not (home / "conf").exists()


def _place(name: str) -> int:
    return 0 if name.startswith(_FIRST_JAR) else 2 if name.startswith(_MLLIB) else 1


def _is_mllib(jar: Path) -> bool:
    return jar.name.startswith(_MLLIB)
