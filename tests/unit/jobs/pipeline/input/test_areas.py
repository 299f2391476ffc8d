"""Types of geounits, such as urban and rural."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from das.errors import InputError
from jobs.pipeline.config.models.products import AreasFile
from jobs.pipeline.input.areas import read_areas

CODES = np.array([b"01001", b"01003", b"12001"])


def file(folder: Path, text: str, **changes: object) -> AreasFile:
    path = folder / "types.csv"
    path.write_text(text)
    return AreasFile.model_validate({"path": str(path), **changes})


def test_types_in_the_order_of_the_geounits(tmp_path):
    areas = read_areas(file(tmp_path, "geocode,type\n12001,b\n01001,b\n01003,a\n"), CODES)
    assert [areas.labels[kind] for kind in areas.of_geounits] == ["b", "a", "b"]


def test_leading_zeros_that_were_lost_are_put_back(tmp_path):
    text = "geocode,type\n12001,urban\n1001,rural\n1003,urban\n"
    areas = read_areas(file(tmp_path, text, leading_zeros="lost"), CODES)
    assert [areas.labels[kind] for kind in areas.of_geounits] == ["rural", "urban", "urban"]
    with pytest.raises(InputError, match="say `leading_zeros: lost` beside the path"):
        read_areas(file(tmp_path, text), CODES)
