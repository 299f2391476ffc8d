"""A confidential value does not show itself and does not travel."""

from __future__ import annotations

import copy
import errno
import pickle
import traceback
from dataclasses import dataclass

import pytest

from das.confidential import Confidential, redact_errors
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


def test_its_state_cannot_be_taken():
    with pytest.raises(DasError):
        Confidential(1).__getstate__()
    with pytest.raises(TypeError):
        vars(Confidential(1))


@redact_errors
def _parse(text: str) -> int:
    """The work."""
    return _inner(text)


def _inner(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise KeyError(f"no number {text}") from error


def test_an_unforeseen_error_keeps_its_place_and_loses_its_text():
    assert _parse("7") == 7
    with pytest.raises(RuntimeError, match=r"KeyError at .*in _inner < .*in _parse") as caught:
        _parse("x".join(["98765", "4"]))  # a traceback quotes the source
    assert "98765x4" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_an_error_raised_on_purpose_passes():
    error = DasError("people.csv, row 7", "is wrong")

    @redact_errors
    def work() -> None:
        raise error

    with pytest.raises(DasError) as caught:
        work()
    assert caught.value is error


def test_a_system_error_says_which():
    @redact_errors
    def work() -> None:
        raise OSError(errno.ENOSPC, "987654 is too much", "987654.csv")

    with pytest.raises(RuntimeError, match="No space left on device") as caught:
        work()
    assert "987654" not in str(caught.value)


def test_redacted_work_looks_like_the_work():
    assert (_parse.__name__, _parse.__doc__) == ("_parse", "The work.")
    assert pickle.loads(pickle.dumps(_parse)) is _parse
