"""Run the recipes of the documents for other programs, which the test environment does not have.

`python -m tests.documented.recipes` runs every block that says `run by` this file on the release of
the toy state: Python with `--python`, such as that of a throw-away environment with
`pip install polars duckdb`; R by Rscript. What is not installed is a failure. With `--folder` the
state is made in a folder that stays.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.checkout import ROOT, checkout
from tests.documented.blocks import Block, pages, read

HERE = "tests/documented/recipes.py"
_TOY = (
    ("generate", "build/toy-data", "--blocks", "60", "--schema", "toy", "--quiet"),
    ("run", "conf/run/toy.yaml", "--quiet"),
)


def recipes() -> list[Block]:
    """Blocks of all pages that are run here."""
    return [block for page in pages() for block in read(page) if block.value == HERE]


def run(block: Block, folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run a recipe in a folder, in a process of its own."""
    words = ["Rscript", "-e", block.text] if block.language == "r" else [python, "-c", block.text]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def main(words: Sequence[str] | None = None) -> int:
    """Make the toy state if it is not there, run all recipes, print each that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or checkout(Path(made))
        if not (folder / "build/toy/release/products/persons/manifest.json").exists():
            for command in _TOY:
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                whole = [sys.executable, "-m", "jobs.cli.main", *command]
                subprocess.run(whole, cwd=folder, env=environment, check=True, capture_output=True)
        failed = 0
        for block in recipes():
            done = run(block, folder, asked.python)
            print(f"{block.where}: {'failed' if done.returncode else 'runs'}")
            if done.returncode:
                failed += 1
                print(done.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
