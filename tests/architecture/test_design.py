"""Imports, names and files are what the design says, and each rule can turn red."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NAMELESS = {"utils", "util", "helpers", "helper", "common", "base", "misc", "shared", "core"}
TEXTS = {
    ".py",
    ".yaml",
    ".yml",
    ".toml",
    ".md",
    ".sh",
    ".j2",
    ".css",
    ".js",
    ".properties",
    ".txt",
    "",
}
SKIPPED = {"build", "dist", "node_modules", "images", "golden"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# --- every module --------------------------------------------------------------------------------


def test_there_are_modules_in_every_package():
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} == set(PACKAGES)


def test_modules_have_names_that_say_something():
    names = [path.relative_to(ROOT).with_suffix("") for path in MODULES]
    assert [str(name) for name in names if NAMELESS & {*name.parts}] == []


def test_lint_refuses_what_no_module_may_say():
    """`make lint` has Ruff read all modules; here it reads one that says all of it."""
    pytest.importorskip("ruff")
    source = "import random\nprint(1)\nassert 1\nbreakpoint()\neval('1')\nexec('1')\n"
    options = ("--no-cache", "--output-format", "concise", "--stdin-filename", "das/newcomer.py")
    said = run(ROOT, "-m", "ruff", "check", *options, "-", given=source).stdout
    refused = {"D100", "TID251", "T201", "S101", "T100", "S307", "S102"}
    assert {code for code in refused if f" {code} " not in said} == set()


# --- imports -------------------------------------------------------------------------------------


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter")
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    return run(folder, "-c", script)


def run(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        input=given,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


PLANTED = [
    ("solvers/verify.py", "from das.confidential import Confidential", "After measuring"),
    ("jobs/pipeline/release/solve.py", "import das.measure", "After measuring"),
    (
        "jobs/pipeline/release/tables.py",
        "import jobs.pipeline.confidential.read.records",
        "After measuring",
    ),
    ("solvers/problem.py", "import geography.lattice", "A node problem carries no geography"),
    ("das/schema.py", "import geography.lattice", "jobs > solvers"),
    ("das/histograms.py", "import pyarrow", "Spark, pydantic and files stay in jobs"),
    ("solvers/node.py", "import random", "Only das.mechanisms.entropy draws random bits"),
    ("das/errors.py", "import das.rational", "The rooms of das"),
    ("das/queries/factor.py", "import das.queries.query", "No cycles between siblings"),
    ("jobs/pipeline/storage/files.py", "import jobs.pipeline.plan", "The rooms of the engine"),
    ("jobs/pipeline/plan.py", "import jobs.survey.plan", "cli > analysis"),
    ("jobs/analysis/tables.py", "import jobs.design.demo", "cli > analysis"),
    ("jobs/analysis/areas.py", "import jobs.pipeline.confidential.look", "Only these start"),
    ("jobs/newcomer.py", "import os", "cli > analysis"),
    ("jobs/survey/results.py", "import das.means.measure", "After measuring"),
    ("jobs/survey/results.py", "import das.synthesis.adaptive", "After measuring"),
    (
        "jobs/pipeline/release/newcomer.py",
        "import jobs.pipeline.confidential.leaves",
        "After measuring",
    ),
]
# What tells of these is not the import: a module without a place, packages in a circle.
TOLD = {
    "jobs/newcomer.py": "- jobs.newcomer\n",
    "das/queries/factor.py": "No cycles are allowed in das.queries.\n",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said of each broken contract, its name first, of a copy with all that is planted."""
    folder = tmp_path_factory.mktemp("planted")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    for module, line, _ in PLANTED:
        with (folder / module).open("a", encoding="utf-8") as handle:
            handle.write(f"\n{line}\n")
    result = lint_imports(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    _, _, found = result.stdout.partition("Broken contracts\n")
    return re.split(r"\n(?=[^\n]+\n---+\n)", found)


def test_a_forbidden_import_breaks_its_contract(broken):
    untold = []
    for module, line, contract in PLANTED:
        importer = module.removesuffix(".py").replace("/", ".")
        told = TOLD.get(module, f"{importer} -> {line.split()[1]} (l.")
        (said,) = [one for one in broken if one.startswith(contract)]
        untold += [] if told in said else [told]
    assert untold == []


# Who may see the truth, room by room. Everybody else must be named by the firewall.
SEE_THE_TRUTH = {
    "das": {"confidential", "measure", "means", "synthesis"},
    "jobs/pipeline": {"confidential", "learning", "repeat", "run"},
    "jobs/analysis": {"replicate"},
    "jobs/design": {"demo", "drafting", "learning", "synthetic"},
    "jobs/survey": {"confidential", "run"},
}
# The core below the firewall: it knows neither the truth nor who reads it.
BELOW = {
    *("arrays", "change_costs", "definition", "errors", "histograms", "mechanisms", "metrics"),
    *("privacy", "queries", "rational", "schema", "strategy"),
}


def rooms(package: str) -> set[str]:
    """Modules and folders that stand directly in a package."""
    found = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    return found | {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}


def contract(name: str) -> dict[str, Any]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return next(one for one in contracts["contracts"] if one["id"] == name)


def test_every_room_stands_on_one_side_of_the_firewall():
    named = set(contract("firewall")["source_modules"])
    others = {
        f"{package.replace('/', '.')}.{room}"
        for package, seers in SEE_THE_TRUTH.items()
        for room in rooms(package) - seers
    }
    assert named == others - {f"das.{room}" for room in BELOW} | {"solvers"}


def test_every_room_but_the_source_of_entropy_is_named_by_its_contract():
    named = set(contract("one-entropy-source")["source_modules"])
    rest = {f"das.{room}" for room in rooms("das") - {"mechanisms"}}
    assert named == rest | {"geography", "invariants", "solvers", "jobs"}


def test_every_room_but_that_of_tasks_is_named_by_the_contract_about_spark():
    named = set(contract("spark-in-tasks")["source_modules"])
    rest = {f"jobs.{room}" for room in rooms("jobs") - {"pipeline", "__main__"}}
    rest |= {f"jobs.pipeline.{room}" for room in rooms("jobs/pipeline") - {"tasks"}}
    assert named == rest | {"das", "geography", "invariants", "solvers"}


# --- documents and files -------------------------------------------------------------------------


def test_examples_in_docstrings_are_true():
    """Those of all packages but jobs."""
    failed = []
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] != "jobs" and ">>>" in path.read_text(encoding="utf-8"):
            result = doctest.testmod(importlib.import_module(module_name(path)))
            failed += [] if result.attempted and not result.failed else [f"{path}: {result}"]
    assert failed == []


def texts() -> list[Path]:
    out = []
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [
            name
            for name in inside
            if name[0] != "." and name not in SKIPPED and not name.endswith((".egg-info", "__"))
        ]
        out += [Path(folder) / name for name in files if Path(name).suffix in TEXTS]
    return sorted(path for path in out if path.stat().st_size < 1 << 20 and path.name[0] != ".")


HOME = re.compile(r"(?<![\w.:/])/(?:home|Users|root|private)/[\w.-]+|\b[A-Z]:\\\\?Users")
SECRET = re.compile(
    "-----BEGIN (?:[A-Z]+ )?PRIVATE KEY|\\bAKIA[0-9A-Z]{16}\\b|\\bgh[pousr]_\\w{30,}|"
    r"(?i:\b(?:password|passwd|secret|api_?key|token)\s*[:=]\s*[\"'][^\"'{}<>$ ]{6,}[\"'])"
)


def test_no_file_knows_a_machine_or_a_secret():
    found = []
    for path in texts():
        text = path.read_text(encoding="utf-8", errors="replace")
        for pattern in (HOME, SECRET):
            found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in pattern.finditer(text)]
    assert len(texts()) > 100
    assert not found


def test_the_patterns_find_what_they_are_for():
    homes = ("path: /home/" + "ann/data.csv", "'/Users/" + "ann'", "C:\\" + "Users")
    secrets = (
        "password: " + "'hunter22'",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "api_key = " + '"0123456789"',
    )
    assert [text for text in homes if not HOME.search(text)] == []
    assert [text for text in secrets if not SECRET.search(text)] == []


def test_shipped_configuration_stays_inside_the_project():
    outside = []
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        for reference in re.findall(r"(?:\.\./)+[\w./-]*", path.read_text(encoding="utf-8")):
            if not (path.parent / reference).resolve().is_relative_to(ROOT):
                outside.append(f"{path.relative_to(ROOT)}: {reference}")
    assert not outside
