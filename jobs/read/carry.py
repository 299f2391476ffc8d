"""Carry a task's own error through Spark, which would turn it into the text of a traceback."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import das.errors
from das.errors import DasError

_MARK = re.compile(r"<das-error:([A-Za-z0-9+/=]+)>")
_FACTS = ("where", "what", "got", "want", "remedy")


class CarriedError(Exception):
    """A DasError in a form that survives being printed into a traceback."""


@contextmanager
def carrying() -> Iterator[None]:
    """In a task: raise any DasError of the body so that `restoring` finds it again."""
    try:
        yield
    except DasError as error:
        facts = {name: getattr(error, name) for name in _FACTS}
        text = json.dumps({"kind": type(error).__name__, **facts})
        code = base64.b64encode(text.encode()).decode()
        raise CarriedError(f"<das-error:{code}>") from None


@contextmanager
def restoring() -> Iterator[None]:
    """On the driver, around an action on entries: raise the task's error with its own type.

    Raises:
      DasError: The one a task raised on purpose.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = _MARK.search(str(error))
        if not found:
            raise
        facts = json.loads(base64.b64decode(found.group(1)))
        kind = getattr(das.errors, facts.pop("kind"), DasError)
        where, what = facts.pop("where"), facts.pop("what")
        raise kind(where, what, **facts) from None
