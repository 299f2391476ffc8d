"""Hadoop from its jars: the files that configure it, and its daemons as processes.

One version serves HDFS and YARN; it is that of the client in PySpark's own jars.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from jobs.pipeline.tasks.java import find_java_home
from tests.servers.downloads import maven_jars

VERSION = "3.5.0"
_ARTIFACTS = (
    "hadoop-common",
    "hadoop-hdfs",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-timelineservice",  # classes that the ResourceManager names
)
_DIGEST = "fa443b32c2d5f794473c0ee8aeed28262d140ce81aeaeba3a66172095218089a"
# Short lives on a shared machine: the second compiler costs more than it gives.
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING = """\
log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Write a configuration file of Hadoop."""
    lines = (
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in properties.items()
    )
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def java_command(configuration: Path, main: str, *words: str) -> list[str]:
    """The command line of a class of Hadoop.

    Args:
      configuration: Folder of the files that configure it; log4j.properties is added.
      main: Name of the class under org.apache.hadoop.
      words: Its arguments.
    """
    jars = maven_jars(
        f"hadoop-{VERSION}", (f"org.apache.hadoop:{one}:{VERSION}" for one in _ARTIFACTS), _DIGEST
    )
    (configuration / "log4j.properties").write_text(_LOGGING)
    for page in ("hdfs", "datanode"):  # the jar lacks them, and daemons do not start without
        (configuration / "webapps" / page).mkdir(parents=True, exist_ok=True)
    java = find_java_home() / "bin" / "java"
    classes = f"{configuration}{os.pathsep}{jars}/*"
    return [str(java), *_OPTIONS, "-cp", classes, f"org.apache.hadoop.{main}", *words]
