"""Catalogues of pages: complete, without leftovers, and filled in like the English messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest
import yaml
from jinja2 import nodes

from das.definition import Definition
from das.mechanisms.registry import chargeable
from das.metrics.accuracy import TRUE_LABELS
from das.queries.sensitivity import Neighbors
from invariants.constraint import Constraint
from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.language import ENGLISH, SHOWN_NUMBER, catalogue, spoken, tr
from jobs.pipeline.neighborhoods import NOT_PROTECTED
from jobs.pipeline.report import budget, certificate, groups, run, text, tiles
from jobs.pipeline.report.page import _environment
from tests.checkout import ROOT

FOLDER = ROOT / "jobs" / "pipeline" / "report"
LANGUAGES = [one for one in get_args(AboutConfig.model_fields["language"].annotation)]
FILLED = re.compile(r"%\(\w+\)s|\{\w+\}|%%")


def of_templates() -> Iterator[str]:
    """Messages of templates; what `_` gets is marked as safe, so it may be no variable."""
    for path in FOLDER.glob("*.j2"):
        for call in _environment().parse(path.read_text("utf-8")).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in ("_", "gettext"):
                message = call.args[0]
                assert isinstance(message, nodes.Const), path
                yield message.value


def of_code() -> Iterator[str]:
    """Messages that calls of `tr` in Python and JavaScript name."""
    for path in (ROOT / "jobs").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "tr":
                message = call.args[0]
                chosen = (
                    [message.body, message.orelse] if isinstance(message, ast.IfExp) else [message]
                )
                yield from (one.value for one in chosen if isinstance(one, ast.Constant))
    yield from re.findall(r'\btr\("([^"]+)"', (FOLDER / "explore.js").read_text("utf-8"))


def of_files() -> Iterator[str]:
    """Messages of YAML files."""
    described = yaml.safe_load((FOLDER / "descriptions.yaml").read_text("utf-8"))
    for key in described.keys() - {"uses"}:
        yield from described[key].values()
    yield from yaml.safe_load((FOLDER / "texts.yaml").read_text("utf-8")).values()


def kinds(of: type[Constraint] = Constraint) -> Iterator[type[Constraint]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def of_values() -> Iterator[str]:
    """Messages that reach `tr` as values: names of kinds, and tables of sentences."""
    yield from (
        SHOWN_NUMBER,
        NOT_PROTECTED,
        "the list of geounits",
        text.TOGETHER,
        text.NOT_RECORDED,
    )
    yield from (
        vars(kind)[key] for kind in kinds() for key in ("kind", "note") if key in vars(kind)
    )
    for kind in {kind for definition in Definition for kind in chargeable(definition)}:
        yield from (kind.title, kind.symbol)
    yield from (*Neighbors, *budget._BASES.values(), *budget.CHANGES.values(), *TRUE_LABELS)
    yield from (certificate._ODDS, *certificate._SIGNATURES, groups._PARITY, "Released", "True")
    yield from (*run._MOVED_BY.values(), *run._WAYS.values())
    yield from (
        one for banner in (tiles.SEEDED, tiles.NOT_VERIFIED) for one in (banner.title, banner.text)
    )
    yield from ("A household of at most {name} persons, as a whole", "What a record says of {name}")
    yield "The place of a record within one {name}"
    yield from ("text", "whole number", "number", "true or false", "bytes")
    yield from ("list of whole numbers", "list of numbers", "list of texts")
    yield from ("datasets", "families", "exact answers", "limited geounits", "tied geounits")
    yield from ("joined records", "noise differences")


def messages() -> set[str]:
    every = {*of_templates(), *of_code(), *of_files(), *of_values()}
    assert len(every) > 600
    return {one for one in every if re.search("[a-z]", FILLED.sub("", one)) or one == SHOWN_NUMBER}


def test_every_language_has_a_catalogue() -> None:
    there = {path.stem for path in (FOLDER / "languages").iterdir()}
    assert there | {ENGLISH} == {*LANGUAGES}


@pytest.mark.parametrize("language", [one for one in LANGUAGES if one != ENGLISH])
def test_a_catalogue_has_every_message_and_no_other(language: str) -> None:
    translated, known = {*catalogue(language)}, messages()
    assert known - translated == set()
    assert translated - known == set()
    wrong = [
        english
        for english, other in catalogue(language).items()
        if {*FILLED.findall(english)} != {*FILLED.findall(other)}
        or english.startswith(" ") != other.startswith(" ")
        or {*re.findall("</?[a-z]+>", english)} != {*re.findall("</?[a-z]+>", other)}
    ]
    assert wrong == []


def test_a_language_ends_with_its_block() -> None:
    with spoken("pt"), spoken(ENGLISH):
        assert tr("Answers") == "Answers"
    with spoken("pt"):
        assert text.decimal(-1234.5) == "\N{MINUS SIGN}1\N{NO-BREAK SPACE}234"
        assert text.percent(0.125) == "12,5 %"
        assert text.moment("2026-01-02T03:04:00+00:00") == "02/01/2026 03:04 UTC"
    assert text.integer(1052567) == "1,052,567"
