"""Every page says that it loads nothing and which script may run; browsers hold it to that."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jobs.pipeline.report.explore import write_explore_page
from jobs.pipeline.storage.files import READABLE
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.report.report_samples import manifest
from tests.unit.jobs.pipeline.report.test_certificate import certificate
from tests.unit.jobs.pipeline.report.test_report import internal, public


def explore(folder: Path) -> str:
    path = folder / "explore.html"
    header = {"confidence": 0.95, "notes": [], "map": None, "text": "</script>\r\n<script>x()"}
    write_explore_page(manifest(), header, "QUJD", path, READABLE)
    return path.read_bytes().decode()


class Policy(HTMLParser):
    """The policy of a page, its scripts, and what no policy of digests allows."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.content = ""
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.before: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.handlers += [v for v in values.values() if v and v.lower().startswith("javascript:")]
        if values.get("http-equiv") == "Content-Security-Policy":
            assert not self.content
            self.content = values["content"]
        elif not self.content:
            self.before.append(tag)
        if tag == "script" and "type" not in values:
            self._in_script = True
            self.scripts.append("")

    def handle_data(self, data):
        if self._in_script:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._in_script = self._in_script and tag != "script"


PAGES: dict[str, Callable[[Path], str]] = {
    "report": public,
    "internal": internal,
    "certificate": certificate,
    "explore": explore,
}


@pytest.mark.parametrize("kind", PAGES)
def test_the_policy_of_a_page_allows_its_own_script_and_nothing_else(kind, tmp_path):
    page = PAGES[kind](tmp_path)
    found = Policy(page)
    assert found.before == ["html", "head", "meta"]  # of the character set
    said = dict(part.split(" ", 1) for part in found.content.split("; "))
    assert said.pop("style-src") == "'unsafe-inline'"
    scripts = said.pop("script-src")
    assert said == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert found.handlers == []
    digests = [hashlib.sha256(text.encode()).digest() for text in found.scripts]
    allowed = [f"'sha256-{base64.b64encode(one).decode()}'" for one in digests]
    assert scripts == (" ".join(allowed) or "'none'")
    assert len(allowed) == (kind != "certificate")
    assert "\r" not in page  # browsers read it as another text, with another digest


def test_every_page_has_the_head_with_the_policy():
    templates = [path.read_text() for path in (ROOT / "jobs").rglob("*.html.j2")]
    pages = [text for text in templates if "<html" in text]
    assert len(pages) == 3
    for text in pages:
        assert '<head>\n{% include "head.html.j2" %}\n' in text
    written = [path for path in (ROOT / "jobs").rglob("*.py") if "<html" in path.read_text()]
    assert written == []


def test_scripts_make_no_code_and_set_no_handlers_from_text():
    for path in (ROOT / "jobs").rglob("*.js"):
        assert not re.search(r"\beval\(|new Function|setTimeout\(\s*[\"'`]", path.read_text())
