"""Events of the log of a run, as docs/operations.md lists them."""

from __future__ import annotations

import re

from tests.architecture.test_docs import rows


def documented_events() -> dict[str, list[str]]:
    """Return the documented keys of every event."""
    place = "`stage`, `what`, `geolevel`"
    return {
        row[0].strip("`"): re.findall(r"`(\w+)`", row[2].replace("the place", place))
        for row in rows("docs/operations.md", "| Event |")
    }
