"""The input that was read is told from any other, and from the account that lies beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from das.errors import InputError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.folder.identity import check_same_input, input_files
from tests.builders import toy


def test_other_input_is_refused_and_named(tmp_path: Path):
    toy.write_records(tmp_path)
    config = load_run(toy.configuration(tmp_path)).config
    seen, data = tmp_path / "input.json", config.products["persons"].data.path
    files = input_files(config)
    assert str(data) in files
    seen.write_text(json.dumps(files))
    check_same_input(config, seen)
    data.write_text(data.read_text() + "\n")
    with pytest.raises(InputError, match="the input changed since it was read") as caught:
        check_same_input(config, seen)
    assert str(data) in str(caught.value)


def test_the_account_is_no_input(tmp_path: Path):
    toy.write_records(tmp_path)
    config = load_run(toy.configuration(tmp_path)).config
    account_of(config).write_text("")
    assert str(account_of(config)) not in input_files(config)
