"""What `das validate` accepts is finalized: of random run files none loses its grant.

Nor does any draw from a noise stream twice.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import in_process
from tests.builders.stream_watch import assert_once, watched
from tests.fuzz.random_runs import MAKERS

Das = Callable[..., tuple[int, str]]
SEED = 2028


@pytest.fixture(autouse=True)
def _no_figures(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process.leave_out_figures(monkeypatch)


def tried(das: Das, kind: str, seed: int, folder: Path) -> str:
    """What became of a random run file: refused, or finalized; all else fails."""
    folder.mkdir()
    config = MAKERS[kind](random.Random(f"{kind}:{seed}"), folder)
    code, said = das("validate", config)
    if code != 0:
        assert "Traceback" not in said, (seed, said)
        assert [*folder.rglob("*account*")] == [], seed
        return "refused"
    with watched() as watch:
        code, said = das("run", config)
    assert code == 0, (kind, seed, said)
    assert watch.rows or watch.bits, seed
    assert_once(watch)
    code, said = das("verify", folder / "out" / "release")
    assert code == 0, (kind, seed, said)
    assert json.loads(said), seed
    return "finalized"


def many(das: Das, kind: str, seeds: range, folder: Path) -> Counter[str]:
    print(f"{kind}, seeds {seeds}")
    return Counter(tried(das, kind, seed, folder / f"{kind}-{seed}") for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n"), [("survey", 8), ("census", 3)])
def test_what_is_accepted_is_finalized(das: Das, tmp_path: Path, kind: str, n: int) -> None:
    found = many(das, kind, range(SEED, SEED + n), tmp_path)
    assert found["finalized"] >= n // 2


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "n"), [("survey", 1000), ("census", 300)])
def test_many_that_are_accepted_are_finalized(das: Das, tmp_path: Path, kind: str, n: int) -> None:
    seed = random.SystemRandom().randrange(10**9)
    found = many(das, kind, range(seed, seed + n), tmp_path)
    assert found["finalized"] >= n // 2
