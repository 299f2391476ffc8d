"""The counter of what a run file and a batch go through sees each function once, and no others."""

from __future__ import annotations

from das.rational import parse_fraction
from das.schema import is_plain_name
from tests.architecture.walks import watched

FRACTION = ("das/rational.py", "parse_fraction")
NAME = ("das/schema.py", "is_plain_name")


def twice() -> None:
    for _ in range(2):
        parse_fraction("1/2", "here")


def test_functions_of_the_packages_are_seen_once_each():
    with watched() as seen:
        twice()
    is_plain_name("age")  # when nobody watches any more
    assert FRACTION in seen
    assert NAME not in seen
    assert all(module.startswith("das/") for module, _ in seen)


def test_only_what_the_first_call_does_is_seen_if_that_is_asked_for():
    with watched(twice) as seen:
        is_plain_name("age")
        twice()
        is_plain_name("age")
    assert FRACTION in seen
    assert NAME not in seen
