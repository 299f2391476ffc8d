"""A reader who does what a page says, block after block, in a clone of the project."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import subprocess
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from das.errors import DasError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.groups import GroupsFile
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.schema import load_schema
from jobs.survey.plan import load_survey
from tests.checkout import environment
from tests.documented.blocks import PYTHON, SHELL, Block, instead
from tests.unit.jobs.pipeline.confidential.read import reading

T = TypeVar("T")

SECONDS = 300  # of one block, on a machine with other work


class BlockError(AssertionError):
    """A block does not do what the page says; the message has page, line, block and output."""

    def __init__(self, block: Block, what: str, output: str = "") -> None:
        super().__init__(f"{block.where}: {what}\n\n{block.text}\n{output[-6000:]}")


@dataclass
class Reader:
    """One clone, one shell and one Python session.

    Attributes:
      project: The clone; the first block starts in it.
      commands: A folder whose commands the shell prefers to those that are installed.
      variables: What the shell has exported so far.
      folder: Where the shell is.
      names: Of the Python session.
      printed: By the last block that was run.
      files: That the page has written, by their last names.
      written: YAML files of the page.
    """

    project: Path
    commands: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "documented"})
    printed: str = ""
    files: dict[str, Path] = field(default_factory=dict)
    written: list[tuple[Block, Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.variables = environment(self.project)
        if self.commands:
            self.variables["PATH"] = f"{self.commands}{os.pathsep}{self.variables['PATH']}"
        self.folder = self.project

    def read_page(self, blocks: list[Block]) -> None:
        """Do all of them, with a new shell and a new Python session, and load the run files."""
        self.__post_init__()
        self.names, self.files, self.written = {"__name__": "documented"}, {}, []
        for block in blocks:
            if block.is_run:
                self.do(block)
        for block, path in self.written:
            self._load(block, path, blocks)

    def do(self, block: Block) -> None:
        """Do one block.

        Raises:
          BlockError: It fails, takes too long, or has printed something else.
        """
        if block.mark == "run instead":
            self._shell(block, instead(block))
        elif block.mark == "file":
            path = self.project / block.value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            self.files[path.name] = path
            if block.language == "yaml":
                self.written.append((block, path))
        elif block.mark == "part of":
            self._part(block)
        elif block.mark == "output":
            if self.printed.strip() != block.text.strip():
                raise BlockError(block, "the block before it has printed", self.printed)
        elif block.mark == "these files exist":
            names = [line.split()[0] for line in block.text.splitlines() if line.strip()]
            missing = [name for name in names if not (self.project / name).exists()]
            if missing:
                raise BlockError(block, f"does not exist: {missing}")
        elif block.language in SHELL:
            self._shell(block, block.text)
        elif block.language in PYTHON:
            self._python(block)
        else:
            raise BlockError(block, f"nobody knows how to run {block.language!r}")

    def _shell(self, block: Block, commands: str) -> None:
        left = self.project.parent / "shell-state"
        script = f"{commands}\n{{ pwd; env -0; }} > {left}\n"
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BlockError(block, f"took more than {SECONDS} s", str(error.stdout)) from None
        if done.returncode:
            raise BlockError(
                block, f"ended with exit code {done.returncode}", done.stdout + done.stderr
            )
        self.printed = done.stdout
        folder, _, variables = left.read_text(encoding="utf-8").partition("\n")
        self.folder = Path(folder)
        self.variables = dict(one.split("=", 1) for one in variables.split("\0") if "=" in one)

    def _python(self, block: Block) -> None:
        output, here = io.StringIO(), Path.cwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(output):
                if ">>>" in block.text:
                    self._examples(block)
                else:
                    code = "\n" * block.line + block.text  # so that frames have the page's lines
                    exec(compile(code, block.page, "exec"), self.names)
        except BlockError:
            raise
        except Exception as error:
            said = output.getvalue() + traceback.format_exc()
            raise BlockError(block, "raised", said) from error
        finally:
            os.chdir(here)
        self.printed = output.getvalue()

    def _examples(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, self.names, str(block.page), str(block.page), block.line
        )
        said = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=said.write, clear_globs=False)
        self.names.update(test.globs)
        if runner.failures:
            raise BlockError(block, "an example gives something else", said.getvalue())

    def _part(self, block: Block) -> None:
        """Load a run file with the keys of the block in place of its own."""
        base = self.project / block.value
        document = yaml.safe_load(base.read_text(encoding="utf-8"))
        part = yaml.safe_load(block.text)
        if not {*part} & {*RunConfig.model_fields}:  # keys of a product: those of the last one
            part = {"products": {[*document["products"]][-1]: part}}
        document = _put(document, part)
        path = base.with_name(f"documented-{block.line}.yaml")
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        run = self._load_run(block, path)
        path.unlink()
        data, name = run.last.config.data, run.last.config.data.path.name
        if name in self.files:  # the page shows the data as well: count its records
            found = data.model_copy(update={"path": self.files[name]})
            try:
                records = reading.read(found, run.plan.schema, run.plan.spine.digits[-1])
            except DasError as error:
                raise BlockError(block, f"{name} cannot be read by it", str(error)) from error
            if not records:
                raise BlockError(block, f"finds no records in {name}")

    def _load(self, block: Block, path: Path, blocks: list[Block]) -> None:
        """Load a file as what it is; what is no schema and no run file, others on the page name."""
        keys = set(yaml.safe_load(block.text))
        if "attributes" in keys:
            load_schema(path)
        elif "kind" in keys:
            self._checked(block, load_survey, path)
        elif "groups" in keys:
            GroupsFile.model_validate(yaml.safe_load(block.text))
        elif {"products", "output"} <= keys or {"data", "privacy"} <= keys:
            self._load_run(block, path)
        elif not any(path.name in other.text for other in blocks if other is not block):
            raise BlockError(block, f"no other block of the page reads {path.name}")

    def _load_run(self, block: Block, path: Path) -> Resolved:
        return self._checked(block, load_run, path)

    def _checked(self, block: Block, load: Callable[[Path], T], path: Path) -> T:
        try:
            return load(path)
        except DasError as error:
            raise BlockError(block, "is refused", str(error)) from error


def _put(document: Any, part: Any) -> Any:
    """A document with the keys of a part; input of another format takes the place of the old."""
    if not (isinstance(document, dict) and isinstance(part, dict)) or "input_format" in part:
        return part
    return document | {key: _put(document.get(key), value) for key, value in part.items()}
