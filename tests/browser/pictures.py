"""Every page of a generated state, and pictures of them for the documents.

    python -m tests.browser.pictures [FOLDER] [--blocks N]

The noise is that of a release, so pictures of two runs differ. Writes NAME-1300.png and NAME-400.png
with few colors into FOLDER, by default docs/images: what a window of that width shows first, the
certificate whole.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import typer.testing
import yaml

from jobs.cli.main import app
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import run
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.tasks.progress import Reporter
from tests.browser.chromium import chromium
from tests.builders.boundaries import write_boundaries
from tests.builders.in_process import tasks_of
from tests.builders.places import release_of
from tests.checkout import ROOT

HEIGHTS = {1300: 1100, 400: 900}
_COLORS = 96


@dataclass(frozen=True)
class Pages:
    """Where the pages of a run lie."""

    KINDS: ClassVar = (
        "report", "internal-report", "explore", "internal-explore", "certificate"
    )  # fmt: skip
    folder: Path

    def path(self, kind: str) -> Path:
        """One of them."""
        inside = {
            "report": "out/release/products/persons/report.html",
            "internal-report": "out/confidential/products/persons/report.html",
        }
        return self.folder / inside.get(kind, f"{kind}.html")


def demo_state(folder: Path, blocks: int) -> Path:
    """Generate a state of the schema of the redistricting data; returns a run file."""
    data = folder / "data"
    generate(GenerateSpec(seed=2020, blocks=blocks, format="histograms"), data)
    document = yaml.safe_load((ROOT / "conf" / "run" / "demo.yaml").read_text())
    persons = document["products"]["persons"]
    for section, key in ((persons, "schema"), (persons["privacy"], "allocation")):
        section[key] = str((ROOT / "conf" / "run" / section[key]).resolve())
    persons["data"] = {"input_format": "histograms", "path": str(data / "histograms")}
    persons["output"] = {"tables": ["total", "hhgq", "votingage * hispanic", "cenrace"]}
    document["geography"]["geounits"] = {"path": str(data / "geounits.parquet")}
    document["output"] = {"directory": str(folder / "out")}
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return config


def make_pages(config: Path) -> Pages:
    """Run a run file whose output is the folder `out` beside it, and write all pages of it."""
    resolved = load_run(config)
    run(resolved, Reporter(quiet=True), tasks=tasks_of(resolved.config))
    pages = Pages(config.parent)
    out = config.parent / "out"
    tracts = read_public_geocodes(release_of(out), "tract")
    outlines = config.parent / "tracts.json"
    write_boundaries(outlines, [str(code) for code in tracts], (5,))
    land = ("--boundaries", outlines, "--names", "NAME")
    _das("explore", out / "release", *land, "-o", pages.path("explore"))
    _das("explore", out, "--internal", *land, "-o", pages.path("internal-explore"))
    _das("verify", out / "release", "--quiet", "--certificate", pages.path("certificate"))
    return pages


def _das(*words: object) -> None:
    result = typer.testing.CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output


def quantized(picture: bytes) -> bytes:
    """A PNG with few colors, which is a quarter of the size."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    out = io.BytesIO()
    image.quantize(_COLORS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main(arguments: list[str]) -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--blocks", type=int, default=2500)
    asked = parser.parse_args(arguments)
    shown = {
        "report": "", "internal-report": "", "certificate": "",
        "explore": "tract/cenrace/1/0:0,3:01001000100",
        "internal-explore": "tract/total/0/3:01001000100,3:01001000300",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        pages = make_pages(demo_state(Path(folder), asked.blocks))
        for kind, fragment in shown.items():
            for width, height in HEIGHTS.items():
                page = browser.open(pages.path(kind), width=width, height=height, fragment=fragment)
                if "explore" in kind:
                    page.wait("document.body.dataset.ready === 'yes'")
                picture = quantized(page.picture(whole=kind == "certificate"))
                path = asked.folder / f"{kind}-{width}.png"
                path.write_bytes(picture)
                print(f"{path}  {len(picture) / 1000:.0f} kB")
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
