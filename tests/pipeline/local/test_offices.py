"""Twenty files of invented offices become runs: after how many refusals, and harming nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.values import names_of
from jobs.pipeline.input.geounits import list_geounits
from tests.builders.offices import Office, office

Das = Callable[..., tuple[int, str]]
MOST = 4  # refusals of one file


def proposal(das: Das, made: Office) -> Path:
    """What a statistician gets who does as the messages say."""
    while True:
        words = [word for pair in made.words.items() for word in pair]
        code, said = das("init", made.data, made.folder / "new", *words, "--table", "total")
        if code == 0:
            return made.folder / "new" / "run.yaml"
        assert made.learn(said), said
        assert len(made.refusals) <= MOST, made.refusals


def is_harmful(run: Path, made: Office) -> bool:
    """Whether households are places, or places are lost or one, or an unknown list is called public."""
    resolved = load_run(run)
    geography, data = resolved.config.geography, resolved.config.products["persons"].input
    if not {*made.key} <= {*names_of(data.geocodes)} or "Agregado" in names_of(data.geocodes):
        return True
    if geography.geounits is None:
        return "--geounits" in made.words
    listed = list_geounits(geography.geounits, resolved.plan.census_spine)
    return "--geounits" not in made.words or len(listed) != len(made.places)


def test_any_file_becomes_a_run_and_harms_nobody(das: Das, tmp_path: Path) -> None:
    refusals = []
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        made = office(folder, seed)
        run = proposal(das, made)
        assert not is_harmful(run, made), (seed, made.words, run.read_text())
        code, said = das("validate", run, "--data")
        assert (code, "every geocode and code is legal" in said) == (0, True), (seed, said)
        refusals.append(len(made.refusals))
    assert median(refusals) <= 1, refusals
    assert max(refusals) <= 3, refusals
