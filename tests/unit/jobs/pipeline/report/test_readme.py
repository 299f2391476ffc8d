"""README.md and codebook.md of a release: names in them are text, whatever shows the Markdown."""

from __future__ import annotations

import dataclasses

import pytest

from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.documents.codebook import Codebook
from jobs.pipeline.report.datasets import codebook_page, readme
from jobs.pipeline.report.page import code
from tests.unit.jobs.pipeline.report.report_samples import manifest

NAME = "<img src=x onerror=alert(1)>"
ABOUT = AboutConfig()


@pytest.mark.parametrize(
    "about",
    [
        ABOUT,
        AboutConfig(title=NAME),
        AboutConfig(publisher=NAME),
        AboutConfig(contact=NAME, citation=NAME, licence=NAME, description=NAME),
    ],
)
def test_a_readme_holds_no_markup_of_the_run(about):
    page = readme(dataclasses.replace(manifest(), name=NAME), about)
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)>" in page


def test_a_codebook_holds_no_markup_of_the_run():
    book = Codebook(
        format=1,
        name=NAME,
        records="persons",
        cells=2,
        attributes=(),
        recodes=(),
        geolevels=(),
        queries=(),
        datasets=(),
    )
    assert codebook_page(book).startswith("# Codebook of &lt;img")


@pytest.mark.parametrize("name", ["<b>", "`<b>", "``<b>``", "a```b", "`"])
def test_code_cannot_be_ended_by_what_is_in_it(name):
    shown = code(name)
    ticks = len(shown) - len(shown.lstrip("`"))
    inner = shown[ticks:-ticks]
    assert "`" * ticks not in inner
    assert inner[0] + inner[-1] == "  " or "`" not in (inner[0], inner[-1])
    assert inner.strip(" ") == name
