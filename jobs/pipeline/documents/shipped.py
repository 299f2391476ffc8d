"""The JSON Schemas of documents in the package; `jobs.cli.schemas` generates them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

SHIPPED = Path(__file__).with_name("schemas")
_RELEASED = ("release", "manifest", "account", "codebook", "intervals")


def released_schemas() -> dict[str, str]:
    """Read the schemas of the documents of a census release: file name -> text."""
    shipped = files("jobs.pipeline.documents") / "schemas"
    names = [f"{name}.schema.json" for name in _RELEASED]
    return {name: (shipped / name).read_text("utf-8") for name in names}
