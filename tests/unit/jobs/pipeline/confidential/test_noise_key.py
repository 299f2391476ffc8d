"""The noise key is lent in two shares: together they are the key, alone they say nothing of it."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from das.errors import OutputError, RuntimeSetupError
from das.mechanisms.entropy import KEY_BYTES, NoiseKey
from jobs.pipeline.confidential.noise_key import lent, sweep_shares

KEY = NoiseKey.draw()


def test_a_task_puts_the_key_together(tmp_path: Path) -> None:
    with lent(KEY, tmp_path / "keys") as held:
        assert pickle.loads(pickle.dumps(held)).key() == KEY


def test_whether_a_key_can_be_guessed_travels_with_it(tmp_path: Path) -> None:
    guessed = NoiseKey.for_testing(5)
    with lent(guessed, tmp_path) as held:
        assert held.key() == guessed
        assert held.key().is_for_testing


def test_neither_share_is_the_key_nor_the_same_twice(tmp_path: Path) -> None:
    with lent(KEY, tmp_path) as first, lent(KEY, tmp_path) as second:
        shares = [first.share, second.share, first.file.read_bytes(), second.file.read_bytes()]
    assert len({*shares, KEY.secret}) == 5
    assert {len(share) for share in shares} == {KEY_BYTES}


def test_what_travels_holds_no_key_and_prints_no_share(tmp_path: Path) -> None:
    with lent(KEY, tmp_path) as held:
        assert KEY.secret not in pickle.dumps(held)
        assert held.share in pickle.dumps(held)
        assert repr(held.share) not in repr(held)


def test_the_share_on_disk_is_the_owners_alone(tmp_path: Path, monkeypatch) -> None:
    with lent(KEY, tmp_path / "keys") as held:
        assert stat.S_IMODE(held.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(held.file.parent.stat().st_mode) == 0o700


def test_after_the_tasks_nobody_puts_the_key_together(tmp_path: Path) -> None:
    """What a task finds that comes late, such as an attempt that was overtaken."""
    with lent(KEY, tmp_path) as held:
        pass
    assert not any(tmp_path.iterdir())
    with pytest.raises(OutputError, match=r"is gone.*das run"):
        held.key()


def test_the_share_is_removed_when_the_tasks_fail(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lent(KEY, tmp_path):
        _ = 1 / 0
    assert not any(tmp_path.iterdir())


def test_what_a_killed_driver_left_is_swept(tmp_path: Path) -> None:
    manager = lent(KEY, tmp_path)
    held = manager.__enter__()  # and no exit, as when the process is killed
    (tmp_path / "other").touch()
    sweep_shares(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    with pytest.raises(OutputError):
        held.key()
    sweep_shares(tmp_path / "absent")


def test_a_torn_share_is_no_key(tmp_path: Path) -> None:
    with lent(KEY, tmp_path) as held:
        held.file.write_bytes(held.file.read_bytes()[:-1])
        with pytest.raises(RuntimeSetupError, match="wrong length"):
            held.key()


def test_every_bit_of_the_key_matters_in_both_shares() -> None:
    share, other = KEY.split()
    assert NoiseKey.joined(share, other) == KEY == NoiseKey.joined(other, share)
    for position in range(0, 8 * KEY_BYTES, 37):
        turned = bytearray(other)
        turned[position // 8] ^= 1 << position % 8
        assert NoiseKey.joined(share, bytes(turned)) != KEY
