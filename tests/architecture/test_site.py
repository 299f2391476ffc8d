"""The site of the documents: its navigation has every page, and its environment is one of the family.

`make docs` builds the site and fails with any warning; what is here needs none of its packages.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.checkout import ROOT, project_files


@pytest.fixture(scope="module")
def navigation() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "navigation", ROOT / "docs" / "site" / "navigation.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(navigation: ModuleType, root: Path) -> list[str]:
    """All pages that the navigation shows, as often as it shows them."""
    below = navigation.contents(root)
    return [page for groups in below.values() for _, pages in groups for page in pages]


def test_the_navigation_shows_every_page_once(navigation: ModuleType) -> None:
    pages = {str(path.with_suffix("")) for path in project_files() if path.suffix == ".md"}
    found = shown(navigation, ROOT)
    assert len(pages) > 60
    assert set(found) == pages - {navigation.INDEX}
    assert sorted(found) == sorted(set(found))


def test_captions_are_the_parts_of_the_index(navigation: ModuleType) -> None:
    captions = [caption for caption, _ in navigation.contents(ROOT)[navigation.INDEX]]
    assert captions == ["Learn", "Do", "Look up", "Understand"]


def test_a_page_that_the_index_does_not_name_would_be_missing(
    navigation: ModuleType, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    index = tmp_path / "docs" / "README.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(text.replace("](privacy.md)", "](https://example.org)"), encoding="utf-8")
    assert {*shown(navigation, ROOT)} - {*shown(navigation, tmp_path)} == {"docs/privacy"}


def locked(name: str) -> dict[str, str]:
    """Versions of distributions."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^ ;]+)", text, re.MULTILINE))


def test_the_environment_of_the_site_keeps_the_versions_of_all_others() -> None:
    site, tests, reading = locked("docs.txt"), locked("test.txt"), locked("analysis.txt")
    assert {"sphinx", "myst-parser", "furo"} <= {*site}
    assert not {"sphinx", "myst-parser", "furo"} & {*tests}
    assert reading.items() <= site.items()
    both = {*site} & {*tests}
    assert {name: site[name] for name in both} == {name: tests[name] for name in both}
