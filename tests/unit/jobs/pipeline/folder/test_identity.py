"""Whose a run folder is: kept from start to start, given up only where nothing was spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from das.errors import ConfigError, LedgerError, OutputError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved, account_of
from jobs.pipeline.folder.identity import claim_as, has_spent, load_again, note_account, owner_of
from tests.builders import toy
from tests.builders.places import truth_of


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    toy.write_records(tmp_path)
    return load_run(toy.configuration(tmp_path))


def other(folder: Path) -> Resolved:
    """The same folder under another configuration."""
    return load_run(toy.configuration(folder, privacy__rho="3"))


def test_a_folder_keeps_its_identity(resolved):
    identity = claim_as(owner_of(resolved))
    assert claim_as(owner_of(resolved)) == identity
    out = resolved.config.output.directory
    document = json.loads((out / "run.json").read_text())
    assert document["run"] == identity
    assert document["run_file"] == str(resolved.source.resolve())
    assert load_again(out, None, None).plan.digest == resolved.plan.digest


def test_a_folder_where_nothing_was_spent_is_taken_over(resolved, tmp_path):
    identity = claim_as(owner_of(resolved))
    out = resolved.config.output.directory
    (out / "release" / "geography").mkdir(parents=True)
    (truth_of(out).root / "histograms").mkdir(parents=True)
    assert has_spent(out, account_of(resolved.config)) is None
    changed = other(tmp_path)
    assert claim_as(owner_of(changed)) == identity
    assert not (out / "release").exists()
    assert not (truth_of(out).root / "histograms").exists()
    document = json.loads((out / "run.json").read_text())
    assert document["configuration_digest"] == changed.plan.digest


def test_a_folder_whose_grant_was_claimed_is_not(resolved, tmp_path):
    claim_as(owner_of(resolved))
    out, account = resolved.config.output.directory, account_of(resolved.config)
    note_account(out, account, {})
    assert has_spent(out, account) == "which claimed its grant"
    with pytest.raises(OutputError, match="belongs to a different configuration"):
        claim_as(owner_of(other(tmp_path)))
    with pytest.raises(ConfigError, match="is not the configuration that this folder was begun"):
        load_again(out, other(tmp_path).source, None)


def test_grants_are_claimed_in_one_account(resolved, tmp_path):
    claim_as(owner_of(resolved))
    out, account = resolved.config.output.directory, account_of(resolved.config)
    note_account(out, account, {})
    note_account(out, account, {})
    with pytest.raises(LedgerError, match="is not the account in which the grants"):
        note_account(out, tmp_path / "another.jsonl", {})


def test_a_folder_without_a_run_file_asks_for_it(resolved):
    claim_as(owner_of(resolved))
    resolved.source.unlink()
    with pytest.raises(ConfigError, match="the run file is not where it was"):
        load_again(resolved.config.output.directory, None, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [*(("run", one) for one in (None, 7, [])), ("inputs", "x"), ("account", {}), ("run_file", 3)],
)
def test_a_run_json_that_holds_what_no_run_writes_is_refused(resolved, key, value):
    claim_as(owner_of(resolved))
    out, account = resolved.config.output.directory, account_of(resolved.config)
    document = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**document, key: value}))
    for reads in (
        lambda: claim_as(owner_of(resolved)),
        lambda: load_again(out, None, None),
        lambda: note_account(out, account, {}),
    ):
        with pytest.raises(OutputError, match=rf"run\.json: {key}: is damaged"):
            reads()


def test_a_run_json_without_a_run_is_refused(resolved):
    claim_as(owner_of(resolved))
    out = resolved.config.output.directory
    (out / "run.json").write_text("{}")
    with pytest.raises(OutputError, match=r"run\.json: run: is damaged"):
        has_spent(out, account_of(resolved.config))
