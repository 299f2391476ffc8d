"""Every input format that a run file can state has a reader, and nothing else has one."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from das.errors import ConfigError
from jobs.pipeline.confidential.read import formats
from jobs.pipeline.config.models.data import DataConfig, NmfData
from tests.unit.jobs.pipeline.confidential.read.reading import TOY

STATED = {get_args(model.model_fields["input_format"].annotation)[0]: model for model in get_args(DataConfig)}  # fmt: skip


def test_every_format_is_read_but_noisy_answers():
    assert {*STATED} == {*formats._READERS, "nmf"}


def test_noisy_answers_are_no_input():
    data = NmfData(input_format="nmf", path=Path("measured"))
    formats.check_columns(data, TOY)
    with pytest.raises(ConfigError, match="which only `das nmf import` reads"):
        formats.reader_of(data, TOY, 4)
    with pytest.raises(ConfigError, match="got nmf; expected records, block_table or histograms"):
        formats.writer_of(data, TOY, "data.input_format")
