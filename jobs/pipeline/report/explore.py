"""The page of `das explore`: places, tables and a map of a release, for people without programs."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report import text
from jobs.pipeline.report.internal import CONFIDENTIAL
from jobs.pipeline.report.page import render
from jobs.pipeline.report.tiles import banners
from jobs.pipeline.storage.files import READABLE, replace_file


def write_explore_page(
    manifest: Manifest, header: Mapping[str, Any], packed: str, out: Path, mode: int
) -> int:
    """Write the page.

    Args:
      manifest: Manifest of the release.
      header: What `explore.js` reads: geolevels, tables, places of blocks.
      packed: The blocks.
      out: The file; replaced at once.
      mode: Its permissions; if others may not read it, the page says that it is confidential.

    Returns:
      Its size in bytes.

    Raises:
      OutputError: The file cannot be written.
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
        # Within a script, "<" might end the element.
        "header": Markup(json.dumps(header, ensure_ascii=True).replace("<", "\\u003c")),
        "packed": Markup(packed),  # base64
    }
    page = render(
        "explore.html.j2", context, styles=("style.css", "explore.css"), scripts=("explore.js",)
    )
    replace_file(out, page, mode=mode)
    return len(page.encode())


Block = list[int]
"""Where a block stands among the characters of all: first, how many."""


@dataclass(frozen=True)
class Packed:
    """A block before it is put into a page.

    Attributes:
      text: Base64.
      arrays: (name, bytes of a number, how many numbers) of each array in it; none of a text.
    """

    text: str
    arrays: tuple[tuple[str, int, int], ...] = ()


def pack_arrays(arrays: Mapping[str, npt.NDArray[np.int64]]) -> Packed:
    """Pack whole numbers, each array flattened."""
    parts, described = [], []
    for name, values in arrays.items():
        planes = _planes(values.ravel())
        parts.append(planes.tobytes())
        described.append((name, len(planes), values.size))
    return Packed(_encoded(b"".join(parts)), tuple(described))


def pack_text(text: str) -> Packed:
    """Pack a text."""
    return Packed(_encoded(text.encode()))


def _planes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """uint8[w, n]: byte k of all numbers in row k, signs in the lowest bit."""
    numbers = ((values << 1) ^ (values >> 63)).astype("<u8")
    width = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width].T)


def _encoded(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


@dataclass
class Embedding:
    """The blocks of a page, one after the other.

    Attributes:
      most: Characters that all of them may have.
      parts: Their texts.
      size: Characters so far.
    """

    most: int
    parts: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, packed: Packed) -> Block | None:
        """Put a block in; returns where it stands, or None if there is no room for it."""
        place = [self.size, len(packed.text)]
        if sum(place) > self.most:
            return None
        self.parts.append(packed.text)
        self.size += len(packed.text)
        return place

    @property
    def text(self) -> str:
        """All blocks."""
        return "".join(self.parts)
