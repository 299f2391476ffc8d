"""A session that strangers can enter is refused: by its run file if that says so, else when open."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError, RuntimeSetupError
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run, read_cluster
from jobs.pipeline.config.protection import (
    PROTECTION,
    is_local,
    lacks_secret,
    missing_protection,
    protection_of,
    refuse_open,
    refuse_remote,
    secret_properties,
)
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks, SparkTasks
from jobs.pipeline.tasks.session import spark_session
from tests.builders import in_process, toy
from tests.builders.places import release_of

OPEN = {"spark.authenticate": "false"}


@pytest.mark.parametrize(
    ("properties", "missing"),
    [
        ({}, list(PROTECTION)),
        (PROTECTION, []),
        ({**PROTECTION, "spark.authenticate": " TRUE "}, []),
        ({**PROTECTION, "spark.authenticate": "false"}, ["spark.authenticate"]),
        (
            {**PROTECTION, "spark.network.crypto.enabled": "false"},
            ["spark.network.crypto.enabled"],
        ),
        (
            {
                **PROTECTION,
                "spark.network.crypto.enabled": "false",
                "spark.ssl.rpc.enabled": "true",
            },
            [],
        ),
        ({**PROTECTION, "spark.io.encryption.enabled": "no"}, ["spark.io.encryption.enabled"]),
    ],
)
def test_what_a_session_lacks(properties, missing):
    assert list(missing_protection(properties)) == missing
    if not missing:
        refuse_open(properties)
        return
    with pytest.raises(RuntimeSetupError, match=rf"{missing[0]} is not on.*allow_open_cluster"):
        refuse_open(properties)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
        ("", False),
    ],
)
def test_threads_of_one_process_are_local(master, local):
    assert is_local(master) is local


@pytest.mark.parametrize("master", ["", "local[2]", "spark://h:1", "yarn"])
def test_every_session_is_started_protected(master):
    assert protection_of(master, {}, allow_open=False) == PROTECTION
    assert protection_of(master, {"spark.x": "1"}, allow_open=False) == PROTECTION


def test_a_cluster_is_left_as_it_is_set_up_where_the_run_file_allows_it():
    files = {"spark.io.encryption.enabled": "true"}
    assert protection_of("spark://h:1", {}, allow_open=True) == files
    assert protection_of("local[2]", OPEN, allow_open=True) == files  # encryption needs a secret
    assert protection_of("local[2]", {}, allow_open=True) == PROTECTION


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("spark.authenticate.secret", True),
        ("spark.ssl.rpc.keyStorePassword", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.authenticate.secret.file", False),
        ("spark.kubernetes.driver.secrets.das", False),
        ("spark.authenticate", False),
    ],
)
def test_which_properties_are_secrets(name, is_secret):
    assert secret_properties({name: "x"}) == ((name,) if is_secret else ())


def test_a_missing_secret_is_told_with_the_way_to_make_one():
    told = lacks_secret(ValueError("requirement failed: ... spark.authenticate.secret config."))
    assert "token_hex" in str(told)
    assert "--properties-file" in str(told)
    assert lacks_secret(ValueError("another")) is None


@pytest.mark.parametrize("name", list(PROTECTION))
def test_validate_refuses_a_run_file_that_turns_protection_off(tmp_path: Path, name: str):
    config = toy.configuration(tmp_path, runtime={"spark": {name: "false"}})
    with pytest.raises(ConfigError, match=f"{name}: turned off.*allow_open_cluster: true"):
        load_run(config)
    allowed = {"spark": {name: "false"}, "allow_open_cluster": True}
    assert load_run(toy.configuration(tmp_path, runtime=allowed)).config.runtime.allow_open_cluster
    assert load_run(toy.configuration(tmp_path, runtime={"spark": {name: "true"}}))


def test_a_run_file_and_a_cluster_file_hold_no_secret(tmp_path: Path):
    runtime = {"spark": {"spark.authenticate.secret": "abc"}, "allow_open_cluster": True}
    config = toy.configuration(tmp_path, runtime=runtime)
    with pytest.raises(ConfigError, match=r"no place for a secret.*--properties-file") as told:
        load_run(config)
    assert "abc" not in str(told.value)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    with pytest.raises(ConfigError, match=r"cluster.yaml: runtime: .*no place for a secret"):
        read_cluster(tmp_path / "cluster.yaml")


@pytest.mark.parametrize(
    "master", [None, "local[2]", "spark://h:1", "yarn", "k8s://https://h:6443"]
)
def test_other_masters_are_left_alone(master):
    assert refuse_remote(master) == master


def test_a_connect_server_is_refused_and_its_token_not_shown(tmp_path: Path):
    url = "sc://h/;use_ssl=true;token=abc"
    config = toy.configuration(tmp_path, runtime={"master": url})
    with pytest.raises(ConfigError, match=r"runtime\.master: is a Spark Connect server") as told:
        load_run(config)
    assert "abc" not in str(told.value)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"runtime": {"master": url}}))
    with pytest.raises(ConfigError, match="is a Spark Connect server") as told:
        read_cluster(tmp_path / "cluster.yaml")
    assert "abc" not in str(told.value)
    done = CliRunner().invoke(app, ["run", str(config), "--master", url])
    assert isinstance(done.exception, ConfigError)
    assert "--master: is a Spark Connect server" in str(done.exception)
    assert "abc" not in str(done.exception) + done.output


def session_with(properties: dict[str, str]) -> SimpleNamespace:
    """Stands in for a session that was opened with some properties, as in a notebook."""
    conf = SimpleNamespace(getAll=lambda: list(properties.items()))
    context = SimpleNamespace(defaultParallelism=2, getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context, version="none")


@pytest.mark.parametrize("properties", [{}, {**PROTECTION, **OPEN}, PROTECTION])
def test_a_session_that_somebody_else_opened_is_refused_if_open(monkeypatch, properties):
    pyspark = pytest.importorskip("pyspark.sql")
    theirs = session_with(dict(properties))
    monkeypatch.setattr(pyspark.SparkSession, "getActiveSession", lambda: theirs)
    if properties == PROTECTION:
        with spark_session("das") as session:
            assert session is theirs
        return
    with pytest.raises(RuntimeSetupError, match="is open to others"), spark_session("das"):
        pass
    with spark_session("das", allow_open=True) as session:
        assert session is theirs


class InSession(LocalTasks):
    """Tasks in this process that say of a session what Spark would."""

    def __init__(self, sizing: Sizing, slots: int, session: Any) -> None:
        super().__init__(sizing, slots, is_open=SparkTasks(session, sizing).is_open)


@pytest.mark.parametrize(("properties", "is_open"), [(OPEN, True), (PROTECTION, False)])
def test_the_release_states_that_it_was_measured_in_an_open_session(
    tmp_path: Path, properties, is_open
):
    """Allowing it does not state it: whether the session was open does."""
    toy.write_records(tmp_path)
    config = load_run(toy.configuration(tmp_path, runtime={"allow_open_cluster": True}))
    tasks = InSession(in_process.fine(1), 2, session_with(dict(properties)))
    release = release_of(in_process.execute(config, tasks))
    manifest = yaml.safe_load(release.manifest.read_text())
    assert manifest["open_sessions"] == (toy.LEVELS if is_open else [])
    report = release.report.read_text()
    assert ("no authentication or no encryption" in report) is is_open
