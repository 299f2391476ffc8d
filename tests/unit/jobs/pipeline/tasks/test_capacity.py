"""Whether a standalone cluster can start an executor, by what its master says; and masters found."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from das.errors import RuntimeSetupError
from jobs.pipeline.tasks.session import Standalone, refuse_absent_master

SMALL, LARGE = ("a", 2, 4096), ("b", 8, 1024)


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that is bound and at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(
    ("workers", "cores", "mebibytes", "most", "hindered"),
    [
        ((SMALL, LARGE), 2, 4096, None, None),
        ((SMALL, LARGE), 8, 1024, 8, None),
        ((SMALL, LARGE), 3, 2048, None, "no worker with room"),  # each has one of the two
        ((SMALL,), 2, 4097, None, "no worker with room"),
        ((SMALL,), 2, 4096, 1, "cores in all"),
        ((), 1, 1, None, "has no worker"),
    ],
)
def test_what_hinders_an_executor(workers, cores, mebibytes, most, hindered):
    hindrance = Standalone(workers, (), cores, mebibytes, most).hindrance
    assert hindrance is None if hindered is None else hindered in hindrance


def test_a_cluster_is_told_in_one_line():
    cluster = Standalone([SMALL, *[LARGE] * 9], ["other"], 1, 1024, None)
    said = str(cluster)
    assert said.startswith("workers: a with 2 cores and 4,096 MB, b with 8 cores and 1,024 MB")
    assert said.endswith("1,024 MB and 2 more; other applications: other")


def test_one_master_of_several_is_enough(listener, silent):
    refuse_absent_master(f"spark://127.0.0.1:{silent},127.0.0.1:{listener}")


@pytest.mark.parametrize("master", ["local[4]", "yarn", "k8s://https://nowhere:1", ""])
def test_other_masters_are_not_looked_for(master):
    refuse_absent_master(master)


def test_a_master_that_is_not_there_is_refused(silent):
    url = f"spark://127.0.0.1:{silent}"
    with pytest.raises(RuntimeSetupError, match="no master of a Spark cluster answers") as error:
        refuse_absent_master(url)
    assert error.value.where == url
    assert f"127.0.0.1:{silent}: Connection refused" in str(error.value)
