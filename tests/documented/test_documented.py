"""Every block of every page is run as a reader would run it, or its mark says why not."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import checkout
from tests.documented import recipes
from tests.documented.blocks import SHELL, Block, blocks_of, goes_on_from, pages, problems, read
from tests.documented.reader import BlockError, Reader
from tests.documented.served import serve

WITH_BLOCKS = [page for page in pages() if any(block.is_run for block in read(page))]


README = Path("README.md")


class Readers:
    """Readers by page; one that goes on from another page has read that before.

    Args:
      folder: Where they work, each in a clone of its own.
      commands: Of all pages but the README and those that go on from it.
      one: The only reader, if there is one, who reads all pages in one clone.
    """

    def __init__(
        self, folder: Path, commands: Path | None = None, one: Reader | None = None
    ) -> None:
        self._folder = folder
        self._commands = commands
        self._one = one
        self._done: dict[Path, Reader] = {}

    def after(self, page: Path) -> Reader:
        """The reader after the last block of a page.

        Raises:
          BlockError: A block fails, of this page or of the one before it.
        """
        if page not in self._done:
            self._done[page] = self._read(page)
        return self._done[page]

    def _read(self, page: Path) -> Reader:
        before = goes_on_from(page)
        if before:
            reader = self.after(before)
        elif self._one:
            reader = self._one
        else:
            folder = self._folder / str(page).replace("/", "-").removesuffix(".md")
            folder.mkdir()
            reader = Reader(checkout(folder), None if page == README else self._commands)
        reader.read_page(read(page))
        return reader


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    with serve(tmp_path_factory.mktemp("served")) as commands:
        yield Readers(tmp_path_factory.mktemp("pages"), commands)


def test_every_block_is_run_or_says_why_not() -> None:
    blocks = [block for page in pages() for block in read(page)]
    assert len(blocks) > 40
    assert [problem for problem in problems(blocks)] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=str)
def test_the_page_does_what_it_says(page: Path, readers: Readers) -> None:
    readers.after(page)


@pytest.mark.long
def test_all_pages_do_so_in_one_folder(tmp_path: Path) -> None:
    """No page makes a folder or spends a grant that another one needs."""
    readers = Readers(tmp_path, one=Reader(checkout(tmp_path)))
    for page in WITH_BLOCKS:
        readers.after(page)


def test_no_folder_of_data_is_made_by_two_pages() -> None:
    """The second would be refused; such a page goes on from the first."""
    made = [
        (folder, page)
        for page in pages()
        for block in read(page)
        if block.language in SHELL
        for folder in re.findall(r"^ *das generate.* (build/\S+)", block.text, re.MULTILINE)
    ]
    assert len(made) > 5
    assert {folder for folder, n in Counter(f for f, _ in {*made}).items() if n > 1} == set()


# --- a page that is wrong is found ---------------------------------------------------------------

PAGE = Path("docs/page.md")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    project = tmp_path / "clone"
    project.mkdir()
    return Reader(project)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("```sh\nfalse | cat\n```\n", "docs/page.md:1: ended with exit code 1"),
        ("Text.\n\n```sh\necho $NO_SUCH_NAME\n```\n", "docs/page.md:3: ended with exit code"),
        ("1. Text\n\n   ```sh\n   exit 3\n   ```\n", "docs/page.md:3: ended with exit code 3"),
        ("```python\n1 / 0\n```\n", "docs/page.md:1: raised"),
        ("```python\n>>> 1 + 1\n3\n```\n", "an example gives something else"),
        ("```sh\necho 1\n```\n<!-- output -->\n```text\n2\n```\n", "docs/page.md:5: the block bef"),
        ("<!-- these files exist -->\n```text\nno/file  here\n```\n", r"does not exist: .*no/file"),
        ("<!-- run instead: false | quicker -->\n```sh\ntrue\n```\n", "ended with exit code 1"),
        ("<!-- file: a.yaml -->\n```yaml\ntotal: 1\n```\n", "no other block of the page reads"),
    ],
)
def test_a_block_that_fails_is_found(text: str, what: str, reader: Reader) -> None:
    with pytest.raises(BlockError, match=what):
        reader.read_page(blocks_of(PAGE, text))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("```yaml\na: 1\n```\n", "mark it with"),
        ("<!-- not run: -->\n```sh\nfalse\n```\n", "says nothing after the colon"),
        ("<!-- not run: slow -->\n```sh\nfalse\n```\n", "is no reason"),
        ("<!-- not ran: it needs a cluster -->\n```sh\nfalse\n```\n", "there is no mark"),
        ("<!-- run by: tests/none.py -->\n```sh\nfalse\n```\n", "there is no test"),
        ("<!-- run instead: true -->\n```sh\nfalse\n```\n", "COMMANDS | REASON"),
        ("```\nfalse\n```\n", "language ''"),
        ("```ruby\nputs 1\n```\n", "language 'ruby'"),
        ("```sh\ntrue\n```\n\n```text\n1\n```\n", "mark it with `output` or `not compared`"),
        ("```r\nstop()\n```\n", "R is run by"),
    ],
)
def test_a_mark_that_says_nothing_is_found(text: str, what: str) -> None:
    (problem,) = problems(blocks_of(PAGE, text))
    assert what in problem


def test_a_recipe_that_fails_is_found(tmp_path: Path) -> None:
    """And one that runs is none: of those that the documents mark, by the interpreter given."""
    assert {block.language for block in recipes.recipes()} == {"python", "r"}
    for text, code in (("assert 1 == 1\n", 0), ("assert 1 == 2\n", 1)):
        done = recipes.run(Block(PAGE, 1, "python", text), tmp_path, sys.executable)
        assert done.returncode == code


def test_a_page_has_one_shell_one_session_and_its_files(reader: Reader) -> None:
    text = (
        "```sh\nexport A=1 B='x y'\nmkdir in && cd in\n```\n"
        "<!-- file: in/b.txt -->\n```text\nb\n```\n"
        "```sh\ncat b.txt\necho $A $B\n```\n<!-- output -->\n```text\nb\n1 x y\n```\n"
        "```python\nfrom pathlib import Path\nfound = Path('b.txt').read_text()\n```\n"
        "```python\n>>> found\n'b\\n'\n```\n"
        "<!-- not run: needs another machine -->\n```sh\nfalse\n```\n"
    )
    blocks = blocks_of(PAGE, text)
    assert [problem for problem in problems(blocks)] == []
    reader.read_page(blocks)
    assert goes_on_from(PAGE, "# Title\n\n<!-- after: README.md -->\n") == Path("README.md")
