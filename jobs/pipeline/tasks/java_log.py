"""What the Java of Spark says for itself: errors, on standard error, and nothing else.

An embedded session is started with the settings of this folder. Under spark-submit Java runs before
this program does, with those that Spark has for whoever gives none; they are replaced as soon as
Python starts. Settings that somebody gave stay.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

_OF_SPARK = "/org/apache/spark/log4j2-"  # settings that Spark brings, for whoever gives none


def log_settings(folder: Path) -> Path:
    """The settings as a file that Java can read.

    Args:
      folder: Takes a copy where the package is not on a file system, such as in a zip.
    """
    settings: Traversable = files("jobs.pipeline.tasks") / "log4j2.properties"
    if isinstance(settings, Path):
        return settings
    copy = folder / settings.name
    copy.write_bytes(settings.read_bytes())
    return copy


def quiet_submitted_java() -> None:
    """Let the Java that spark-submit has started print errors only, unless it was told what to."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    SparkContext._ensure_initialized()  # connects to the Java that waits for us; starts no session
    java: Any = SparkContext._jvm
    try:
        # Spark looks for settings when it logs its first line: let it do so now, and say nothing.
        spark = getattr(getattr(java.org.apache.spark.util, "Utils$"), "MODULE$")
        spark.initializeLogIfNecessary(False, True)
        context = java.org.apache.logging.log4j.LogManager.getContext(False)
        used = str(context.getConfiguration().getConfigurationSource().getLocation())
        if _OF_SPARK in used:
            with as_file(files("jobs.pipeline.tasks") / "log4j2.properties") as path:
                context.setConfigLocation(java.java.io.File(str(path)).toURI())
    except (Py4JError, TypeError):  # another Spark: what it prints is no reason to stop
        return
