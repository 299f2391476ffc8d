"""What a developer has at hand does what it says: the hook, the environment of `make lint`."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.checkout import ROOT, checkout, environment

LINT = "lint: $(VENV)/.lint\n\t$(BIN)/ruff check .\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project as a repository with `make hooks` done and one commit."""
    project = checkout(tmp_path)
    makefile = project / "Makefile"
    text = makefile.read_text(encoding="utf-8")
    # The first check alone: the others take a minute, and tests of this folder run them.
    alone = re.sub(r"^lint: .*\n(?:\t.*\n)+", lambda _: LINT, text, flags=re.MULTILINE)
    assert alone != text
    makefile.write_text(alone, encoding="utf-8")
    git(project, "init", "--quiet")
    git(project, "config", "user.name", "A Developer")
    git(project, "config", "user.email", "developer@example.org")
    git(project, "add", "Makefile", ".githooks", "das")
    git(project, "commit", "--quiet", "--message", "before the hook")
    subprocess.run(["make", "hooks"], cwd=project, env=environment(project), check=True)
    return project


def git(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = commanded(project, *words)
    assert done.returncode == 0, done.stderr
    return done


def commanded(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in environment(project).items() if key[:4] != "GIT_"}
    return subprocess.run(
        ["git", *words], cwd=project, env=kept, capture_output=True, text=True, check=False
    )


def test_what_lint_refuses_is_not_committed(clone):
    module = clone / "das" / "rational.py"
    good = module.read_text(encoding="utf-8")
    module.write_text(good + "\nimport os\n", encoding="utf-8")
    refused = commanded(clone, "commit", "--all", "--message", "an import nobody needs")
    assert refused.returncode != 0
    assert "F401" in refused.stdout + refused.stderr
    assert git(clone, "rev-list", "--count", "HEAD").stdout.strip() == "1"

    module.write_text(good + "\n# A remark.\n", encoding="utf-8")
    git(clone, "commit", "--all", "--message", "a remark")
    assert git(clone, "rev-list", "--count", "HEAD").stdout.strip() == "2"


def test_continuous_integration_begins_with_what_the_hook_asks():
    """Ruff, mypy and the contracts of imports: no test repeats them."""
    hook = (ROOT / ".githooks" / "pre-commit").read_text(encoding="utf-8")
    steps = re.findall(r"^make .*", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)
    assert hook.rstrip().endswith("exec make lint")
    assert steps[0] == "make lint"
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint: ")[2]
    commands = re.findall(r"\t\$\(BIN\)/(.*)", rule.partition("\n\n")[0])
    assert commands == ["ruff check .", "ruff format --check .", "mypy", "lint-imports"]


def locked(name: str) -> set[str]:
    """Distributions with their versions."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+==[^ ;]+)", text, re.MULTILINE))


def test_environments_grow_and_never_change_a_version():
    """`make lint`, then `make test`, in one .venv: nothing is installed twice."""
    run, lint, test = locked("run.txt"), locked("lint.txt"), locked("test.txt")
    assert len(run) > 30
    assert run < lint < test


def test_the_environment_of_stores_adds_their_clients_alone_in_the_tested_versions():
    run, stores, test = locked("run.txt"), locked("stores.txt"), locked("test.txt")
    assert run < stores < test
    clients = {entry.partition("==")[0] for entry in stores - run}
    assert clients == {"obstore", "hdfs-native", "fsspec", "argcomplete"}


def test_the_environment_of_lint_has_its_tools_and_none_of_the_tests():
    names = {entry.partition("==")[0] for entry in locked("lint.txt")}
    assert {"ruff", "mypy", "import-linter"} <= names
    assert not {"pytest", "hypothesis", "gurobipy", "opendp", "dp-accounting"} & names


def test_the_licence_is_the_one_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)
    for number, title in ((1, "Definitions"), (5, "Submission of Contributions"), (9, "Accepting")):
        assert f"{number}. {title}" in text
    assert "END OF TERMS AND CONDITIONS" in text
