"""The documented spark-submit to Kubernetes, whose pods are processes: what it asks for, and the release."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jobs.pipeline.config.load import load_run, read_cluster
from tests.architecture.kubernetes import POD, complaints
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.checkout import ROOT
from tests.pipeline.spark.cluster import cluster_environment
from tests.pipeline.spark.kubernetes_api import Machine, Object, api_server
from tests.release_checks import sparse

pytestmark = [pytest.mark.spark, pytest.mark.long]
MADE = "import base64, secrets; key = secrets.token_hex(32)"
MASTER = "k8s://https://host:6443"


def documented_command() -> list[str]:
    """The line of the section on Kubernetes."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = page.split("\n## Kubernetes", 1)[1].replace("\\\n", " ").splitlines()
    (line,) = (line for line in lines if line.startswith("spark-submit --master k8s://"))
    return shlex.split(line)


def session_secret() -> dict[str, str]:
    """What the documented command makes of it."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    code = page[page.index(MADE) :].split("' |", 1)[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def variables_of(pod: Object) -> dict[str, Object]:
    (container,) = pod["spec"]["containers"]
    return {one["name"]: one for one in container["env"]}


def test_the_documented_line_asks_for_closed_pods_and_releases_what_one_process_does(
    tmp_path: Path,
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, runtime={})
    session = session_secret()
    text = config.read_text()
    (tmp_path / "expected").mkdir()
    toy.write_records(tmp_path / "expected")
    expected = in_process.execute(toy.configuration(tmp_path / "expected"))
    with api_server(tmp_path, cluster_environment(), {"das-session": session}) as served:
        url, machine = served
        machine.create("configmaps", {"metadata": {"name": "das-run"}, "data": {"run.yaml": text}})
        command = [f"k8s://{url}" if word == MASTER else word for word in documented_command()]
        assert command != documented_command()
        # In a cluster the driver finds the API server by name.
        command[1:1] = ["--conf", f"spark.kubernetes.driver.master={url}"]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=cluster_environment(),
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        logs = "\n".join(
            path.read_text(errors="replace")[-3000:] for path in tmp_path.glob("*.log")
        )
        assert machine.asked, done.stderr[-3000:]
        check_pods(machine, session)
        assert "exit code: 0" in done.stderr, logs + done.stderr[-3000:]
    out = load_run(config).config.output.directory
    for level in toy.LEVELS:
        assert sparse(release_of(out).counts(level)) == sparse(release_of(expected).counts(level))


def check_pods(machine: Machine, session: dict[str, str]) -> None:
    """A driver and executors, as templates, properties and the cluster file say."""
    driver, *executors = machine.asked
    sizes = read_cluster(ROOT / "conf" / "cluster" / "small-cluster.yaml").spark
    assert len(executors) == int(sizes["spark.executor.instances"])
    for name, pod in (("driver", driver), *(("executor", one) for one in executors)):
        template = yaml.safe_load((ROOT / "docker" / "kubernetes" / f"{name}-pod.yaml").read_text())
        spec, wanted = pod["spec"], template["spec"]
        assert list(complaints({"metadata": pod["metadata"], "spec": spec}, POD)) == []
        (container,), (asked,) = spec["containers"], wanted["containers"]
        assert spec["securityContext"] == wanted["securityContext"]
        assert container["securityContext"] == asked["securityContext"]
        assert container["envFrom"] == asked["envFrom"]
        assert container["args"][0] == name
        mounted = {one["mountPath"] for one in container["volumeMounts"]}
        assert {one["mountPath"] for one in asked.get("volumeMounts", [])} <= mounted
        assert spec["serviceAccountName"] == f"das-{name}"
        assert not any(value in json.dumps(pod) for value in session.values())
        secret = variables_of(pod).get("_SPARK_AUTH_SECRET")
        assert secret == (
            None
            if name == "driver"
            else {
                "name": "_SPARK_AUTH_SECRET",
                "valueFrom": {"secretKeyRef": {"key": "variable", "name": "das-session"}},
            }
        )
    (container,) = executors[0]["spec"]["containers"]
    assert container["resources"]["requests"] == {"memory": "7168Mi", "cpu": "2"}
    assert executors[0]["spec"]["automountServiceAccountToken"] is False
