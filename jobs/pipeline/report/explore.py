"""The page of `das explore`: places, tables and a map of a release, for people without programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report import text
from jobs.pipeline.report.internal import CONFIDENTIAL
from jobs.pipeline.report.render import render
from jobs.pipeline.report.tiles import banners
from jobs.pipeline.storage.files import READABLE, replace_file


def write_explore_page(
    manifest: Manifest, header: Mapping[str, Any], packed: str, out: Path, mode: int
) -> int:
    """Write the page.

    Args:
      manifest: Of the release.
      header: What `explore.js` reads: geolevels, tables, places of blocks.
      packed: The blocks.
      out: The file; replaced at once.
      mode: Its permissions; if others may not read it, the page says that it is confidential.

    Returns:
      Its size in bytes.

    Raises:
      OutputError: It cannot be written.
    """
    is_internal = mode != READABLE
    context = {
        "title": manifest.name,
        "records": manifest.records,
        "kind": "Internal exploration" if is_internal else "Explore the release",
        "internal": is_internal,
        "banners": [*([CONFIDENTIAL] if is_internal else []), *banners(manifest)],
        "facts": [
            ("Created", text.moment(manifest.created)),
            ("Configuration", f"{manifest.configuration_digest[:16]}…"),
        ],
        "confidence": f"{100 * header['confidence']:.10g}",
        "odds": f"{round(100 * header['confidence'])} of 100",
        "notes": header["notes"],
        "has_map": header["map"] is not None,
        "header": _for_script(header),
        "packed": Markup(packed),  # base64
    }
    page = render(
        "explore.html.j2",
        context,
        styles=("style.css", "explore.css"),
        scripts=("explore.js",),
    )
    replace_file(out, page, mode=mode)
    return len(page.encode())


def _for_script(value: Mapping[str, Any]) -> Markup:
    """JSON that cannot end the element it stands in."""
    return Markup(json.dumps(value, ensure_ascii=True).replace("<", "\\u003c"))
