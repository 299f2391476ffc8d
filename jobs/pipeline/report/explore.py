"""The page of `das explore`: places, tables and a map of a release, for people without programs."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.language import catalogue, current, tr, with_separators
from jobs.pipeline.report import text
from jobs.pipeline.report.internal import CONFIDENTIAL
from jobs.pipeline.report.page import render
from jobs.pipeline.report.tiles import banners
from jobs.pipeline.storage.files import READABLE, replace_file


def write_explore_page(
    manifest: Manifest, header: Mapping[str, Any], packed: str, out: Path, mode: int
) -> int:
    """Write the page for exploring a release as one HTML file.

    Args:
      manifest: Manifest of the release.
      header: Values that `explore.js` reads: geolevels, tables, and positions of data blocks.
      packed: The data blocks, as text.
      out: The file; replaced at once.
      mode: Permissions of the file. If other users cannot read it, the page states that it is
        confidential.

    Returns:
      Size of the page in bytes.

    Raises:
      OutputError: The file cannot be written.
    """
    is_internal = mode != READABLE
    script = (files("jobs.pipeline.report") / "explore.js").read_text("utf-8")
    messages = catalogue(current())
    shown = {**header, "messages": {m: messages[m] for m in messages if f'tr("{m}"' in script}}
    context = {
        "title": manifest.name,
        "records": manifest.records,
        "kind": "Internal exploration" if is_internal else tr("Explore the release"),
        "internal": is_internal,
        "banners": [*([CONFIDENTIAL] if is_internal else []), *banners(manifest)],
        "facts": [
            (tr("Created"), text.moment(manifest.created)),
            (tr("Configuration"), f"{manifest.configuration_digest[:16]}…"),
        ],
        "confidence": with_separators(f"{100 * header['confidence']:.10g}"),
        "odds": tr("{share} of 100", share=round(100 * header["confidence"])),
        "notes": header["notes"],
        "has_map": header["map"] is not None,
        # Within a script, "<" might end the element.
        "header": Markup(json.dumps(shown, ensure_ascii=True).replace("<", "\\u003c")),
        "packed": Markup(packed),  # base64
    }
    page = render(
        "explore.html.j2", context, styles=("style.css", "explore.css"), scripts=("explore.js",)
    )
    replace_file(out, page, mode=mode)
    return len(page.encode())


Block = list[int]
"""Position of a block in the text of all blocks: first character, number of characters."""


@dataclass(frozen=True)
class Packed:
    """A data block, encoded for a page.

    Attributes:
      text: Content in Base64.
      arrays: (name, bytes per number, number of numbers) of each array in the block; empty for a
        text.
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
    """Return uint8[w, n]: row k has byte k of each of n numbers, with signs in the lowest bit."""
    numbers = ((values << 1) ^ (values >> 63)).astype("<u8")
    width = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width].T)


def _encoded(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


@dataclass
class Embedding:
    """The data blocks of a page, one after the other.

    Attributes:
      most: Largest number of characters of all blocks together.
      parts: Texts of the blocks.
      size: Characters so far.
    """

    most: int
    parts: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, packed: Packed) -> Block | None:
        """Append a block; returns its position, or None if it would exceed `most` characters."""
        place = [self.size, len(packed.text)]
        if sum(place) > self.most:
            return None
        self.parts.append(packed.text)
        self.size += len(packed.text)
        return place

    @property
    def text(self) -> str:
        """Return the text of all blocks."""
        return "".join(self.parts)
