"""A confidential value does not show itself and does not travel."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest

from das.confidential import Confidential
from das.errors import DasError


@dataclass
class _Holder:
    inside: Confidential[int]


def test_no_text_form_shows_the_value():
    secret = Confidential(987654)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", str([secret])]
    shown += [repr(_Holder(secret)), str(DasError("here", "is wrong", got=secret))]
    assert not any("987654" in text for text in shown)
    assert repr(secret) == "Confidential[int](redacted)"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_cannot_be_pickled_alone_or_inside_another(protocol):
    for value in (Confidential([1]), {"a": Confidential([1])}, _Holder(Confidential(1))):
        with pytest.raises(DasError, match="must not be pickled"):
            pickle.dumps(value, protocol)


def test_it_cannot_be_copied():
    with pytest.raises(DasError):
        copy.copy(Confidential(1))
    with pytest.raises(DasError):
        copy.deepcopy(Confidential(1))


def test_it_takes_no_other_attributes():
    with pytest.raises(AttributeError):
        Confidential(1).extra = 2


def test_reveal_is_the_value_itself():
    value = [1, 2]
    assert Confidential(value).reveal() is value
