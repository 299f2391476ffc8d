"""Programs of servers, fetched once from the registries of their languages and kept outside the project.

Each is one pinned version, and a digest of all that was fetched is compared before it is run. They lie
under XDG_CACHE_HOME/das-tests (default ~/.cache). A test is skipped where the program that fetches is
absent or its registry is not reached, and fails where fetching fails for any other reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

_NOT_REACHED = re.compile(
    "EAI_AGAIN|ECONN|ENETUNREACH|ENOTFOUND|ETIMEDOUT"  # npm
    "|dial tcp|i/o timeout|no such host|TLS handshake timeout"  # Go
    "|Connect timed out|Connection refused|No route to host|Unknown host"  # Maven
)


def go_program(module: str, version: str, digest: str, command: str) -> Path:
    """A command of a Go module, built from source with the dependencies that its go.sum pins.

    Args:
      module: Such as `github.com/versity/versitygw`.
      version: Such as `v1.8.0`.
      digest: The `h1:` hash of the module, its go.sum included.
      command: Folder of the command in the module.
    """

    def build(folder: Path) -> str:
        found = json.loads(_run(folder, "go", "mod", "download", "-json", f"{module}@{version}"))
        source = folder / "source"
        shutil.copytree(found["Dir"], source)
        _run(folder, "chmod", "-R", "u+w", str(source))
        output = str(folder / "program")
        _run(source, "go", "build", "-mod=readonly", "-p=2", "-o", output, f"./{command}")
        shutil.rmtree(source)
        return str(found["Sum"])

    return _fetched(f"{Path(module).name}-{version}", digest, build) / "program"


def npm_package(name: str, version: str, before: str, digest: str) -> Path:
    """The folder of an npm package, its dependencies installed beside it.

    Args:
      name: Of the package.
      version: Of the package.
      before: A date; dependencies are the newest versions that it had, so they are always the same.
      digest: SHA-256 of the names, versions and hashes of all packages.
    """

    def build(folder: Path) -> str:
        (folder / "package.json").write_text("{}")
        words = ("--before", before, "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev")
        _run(folder, "npm", "install", *words, f"{name}@{version}")
        lock = json.loads((folder / "package-lock.json").read_text())
        packages = {at: one for at, one in lock["packages"].items() if at}
        return _digest(f"{at} {one['version']} {one['integrity']}" for at, one in packages.items())

    return _fetched(f"{name}-{version}", digest, build) / "node_modules" / name


def maven_jars(name: str, artifacts: Iterable[str], digest: str) -> Path:
    """A folder with artifacts of Maven Central and all that they need to run.

    Args:
      name: Of the folder.
      artifacts: Such as `org.apache.hadoop:hadoop-hdfs:3.5.0`.
      digest: SHA-256 of the names and SHA-256 of all jars.
    """
    model = "<project><modelVersion>4.0.0</modelVersion><groupId>das</groupId><version>1</version>"
    model += "<artifactId>tests</artifactId><packaging>pom</packaging><dependencies>"
    for artifact in artifacts:
        parts = zip(("groupId", "artifactId", "version"), artifact.split(":"), strict=True)
        words = "".join(f"<{tag}>{word}</{tag}>" for tag, word in parts)
        model += f"<dependency>{words}</dependency>"
    model += "</dependencies></project>"

    def build(folder: Path) -> str:
        (folder / "pom.xml").write_text(model)
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        _run(folder, "mvn", "-B", "-q", "-C", plugin, "-DoutputDirectory=jars", *_RUNTIME)
        jars = (folder / "jars").iterdir()
        return _digest(f"{jar.name} {_sha256(jar.read_bytes())}" for jar in jars)

    return _fetched(name, digest, build) / "jars"


_RUNTIME = ("-DincludeScope=runtime",)


def _fetched(name: str, digest: str, build: Callable[[Path], str]) -> Path:
    """A folder of the cache, built if it is not there; one process builds, others wait."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "das-tests"
    home.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(digest.encode()).hexdigest()[:12]
    kept = home / f"{name}-{key}"
    with (home / f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as draft:
                found = build(Path(draft))
                assert found == digest, f"{name} is not what is pinned: its digest is {found}"
                Path(draft).replace(kept)
                Path(draft).mkdir()  # for the context to remove
    return kept


def _run(folder: Path, *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]}, which fetches this server, is not installed")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = done.stdout + done.stderr
        if _NOT_REACHED.search(output):
            pytest.skip(f"the registry of {command[0]} is not reached from here")
        raise RuntimeError(f"{' '.join(command)}:\n{output[-3000:]}")
    return done.stdout


def _digest(lines: Iterable[str]) -> str:
    return _sha256("\n".join(sorted(lines)).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
