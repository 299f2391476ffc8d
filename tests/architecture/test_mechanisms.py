"""A mechanism touches one place: nothing outside of das/mechanisms says which mechanism it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from das.definition import Definition
from das.mechanisms.registry import chargeable
from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
KINDS = {mechanism.kind for definition in Definition for mechanism in chargeable(definition)}
WORDS = {kind.removeprefix("discrete_") for kind in KINDS}


def modules() -> list[Path]:
    found = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [path for path in found if ROOT / "das" / "mechanisms" not in path.parents]


def names(source: str) -> Iterator[str]:
    """Identifiers, and texts that could be compared with a name; prose has blanks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip():
            yield "" if len(node.value.split()) > 1 else node.value


def named(source: str) -> set[str]:
    """Names of mechanisms in a module."""
    return {name for name in names(source) if any(word in name.lower() for word in WORDS)}


def test_no_module_names_a_mechanism():
    assert KINDS >= {"discrete_gaussian", "discrete_laplace"}
    told = {str(path.relative_to(ROOT)): named(path.read_text()) for path in modules()}
    assert {path: found for path, found in told.items() if found} == {}


def test_a_name_would_be_found_and_prose_is_free():
    lines = (
        "from das.mechanisms.gaussian import DiscreteGaussian",
        "isinstance(noise, DiscreteLaplace)",
        "row['mechanism'] == 'discrete_laplace'",
        "'Laplace' if pure else 'other'",
        "moments.laplace_cdf(3)",
    )
    assert [line for line in lines if not named(line)] == []
    assert not named('"""Discrete Gaussian noise."""\nx = "a discrete Laplace variable"  # Laplace')
