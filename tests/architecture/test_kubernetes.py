"""The files for Kubernetes: no field that nobody reads, and pods that are closed as the text says."""

from __future__ import annotations

import copy
import re
from pathlib import PurePosixPath
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from jobs.pipeline.config.load import read_cluster
from jobs.pipeline.config.protection import missing_protection, secret_properties
from tests.architecture.kubernetes import POD, POD_TEMPLATE, complaints
from tests.checkout import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
PODS = {
    name: yaml.safe_load((FOLDER / f"{name}-pod.yaml").read_text())
    for name in ("driver", "executor")
}
APPLICATION = yaml.safe_load((FOLDER / "application.yaml").read_text())
PROPERTIES = dict(
    line.split(None, 1)
    for line in (FOLDER / "spark.conf").read_text().splitlines()
    if line and not line.startswith("#")
)


class Strict(BaseModel):
    """A part of the resource; a field that it does not name is refused, and no type is bent."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class RestartConfig(Strict):
    restart_policy: Literal["Always", "Never", "OnFailure", "OnInfrastructureFailure"]
    max_restart_attempts: int
    max_restart_on_failure: int | None = None
    restart_backoff_millis: int | None = None


class Tolerations(Strict):
    restart_config: RestartConfig
    resource_retain_policy: Literal["Always", "Never", "OnFailure"]
    resource_retain_duration_millis: int | None = None
    ttl_after_stop_millis: int | None = None


class RuntimeVersions(Strict):
    spark_version: str
    scala_version: str | None = None
    jdk_version: str | None = None


class PodOf(Strict):
    pod_template_spec: dict[str, Any]


class ApplicationSpec(Strict):
    deployment_mode: Literal["ClusterMode", "ClientMode"]
    main_class: str
    py_files: str
    driver_args: list[str]
    runtime_versions: RuntimeVersions
    spark_conf: dict[str, str]
    application_tolerations: Tolerations
    driver_spec: PodOf
    executor_spec: PodOf


class Metadata(Strict):
    name: str
    namespace: str | None = None


class SparkApplication(Strict):
    """What the operator's resource of version v1 has of what a run needs."""

    api_version: Literal["spark.apache.org/v1"]
    kind: Literal["SparkApplication"]
    metadata: Metadata
    spec: ApplicationSpec


def templates() -> dict[str, dict[str, Any]]:
    spec = APPLICATION["spec"]
    return {name: spec[f"{name}Spec"]["podTemplateSpec"] for name in PODS}


# --- fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_pods_have_only_what_the_client_of_spark_knows(name):
    assert list(complaints(PODS[name], POD)) == []
    assert list(complaints(templates()[name], POD_TEMPLATE)) == []


@pytest.mark.parametrize(
    ("path", "key", "value", "said"),
    [
        ((), "securityContex", {}, ".spec.securityContex: unknown"),
        (("containers", 0), "securitycontext", {}, ".spec.containers[0].securitycontext: unknown"),
        (("securityContext",), "runAsUser", "10001", "'10001' is no Long"),
        (("securityContext",), "runAsNonRoot", 1, "1 is no Boolean"),
        ((), "volume", [], ".spec.volume: unknown"),
        (("containers", 0), "envFrom", {}, "is no list"),
        (("containers", 0), "resources", {"limits": {"cpu": []}}, "[] is no Quantity"),
    ],
)
def test_a_misspelt_field_of_a_pod_is_seen(path, key, value, said):
    pod = copy.deepcopy(PODS["executor"])
    place = pod["spec"]
    for step in path:
        place = place[step]
    place[key] = value
    assert [text for text in complaints(pod, POD) if said in text] != []


def test_the_application_has_only_fields_of_the_resource():
    SparkApplication.model_validate(APPLICATION)


@pytest.mark.parametrize("key", ["pyFile", "driverArguments", "sparkVersion"])
def test_a_misspelt_field_of_the_application_is_seen(key):
    wrong = copy.deepcopy(APPLICATION)
    wrong["spec"][key] = "x"
    with pytest.raises(ValidationError, match=key):
        SparkApplication.model_validate(wrong)


# --- what they say -------------------------------------------------------------------------------


def test_operator_and_spark_submit_make_the_same_pods():
    for name, template in templates().items():
        pod = {key: value for key, value in PODS[name].items() if key not in ("apiVersion", "kind")}
        assert template == pod


def test_operator_and_spark_submit_give_the_same_properties():
    ours = {key: value for key, value in PROPERTIES.items() if not key.endswith("podTemplateFile")}
    assert APPLICATION["spec"]["sparkConf"] == {
        key: value for key, value in ours.items() if key != "spark.kubernetes.namespace"
    }
    for name in PODS:
        path = PROPERTIES[f"spark.kubernetes.{name}.podTemplateFile"]
        assert (ROOT / path).samefile(FOLDER / f"{name}-pod.yaml")


def test_sessions_are_closed_and_no_secret_stands_in_a_file():
    assert missing_protection(PROPERTIES) == ()
    assert all("secretKeyRef" in name for name in secret_properties(PROPERTIES))  # not their value
    assert (
        PROPERTIES["spark.speculation"] == PROPERTIES["spark.dynamicAllocation.enabled"] == "false"
    )
    for path in FOLDER.iterdir():
        assert not re.search(r":\s+0\d", path.read_text()), path  # octal for some readers alone
        assert not re.search(r"(?i)(secret|access)_?key\s*[:=]", path.read_text()), path


def test_pods_find_secret_run_file_and_program_where_properties_and_arguments_say():
    def mounts(name):
        (container,) = PODS[name]["spec"]["containers"]
        return {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}

    secret = PurePosixPath(PROPERTIES["spark.authenticate.secret.file"])
    name_of_secret, key = PROPERTIES[
        "spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET"
    ].split(":")
    arguments = APPLICATION["spec"]["driverArgs"]
    volumes = {volume["name"]: volume for volume in PODS["driver"]["spec"]["volumes"]}
    session = volumes[mounts("driver")[str(secret.parent)]]["secret"]
    items = [{"key": "file", "path": secret.name}]
    assert session == {"secretName": name_of_secret, "items": items, "defaultMode": 0o440}
    assert key == "variable"
    assert set(mounts("driver").values()) == set(volumes)
    assert mounts("executor") == {}  # Spark adds what it needs
    assert str(PurePosixPath(arguments[1]).parent) in mounts("driver")
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    (home,) = re.findall(r"^WORKDIR (/\S+)$", dockerfile, re.MULTILINE)[:1]
    for word in (APPLICATION["spec"]["pyFiles"].removeprefix("local://"), arguments[3]):
        assert (ROOT / PurePosixPath(word).relative_to(home)).is_file()
    read_cluster(ROOT / PurePosixPath(arguments[3]).relative_to(home))


@pytest.mark.parametrize("name", PODS)
def test_pods_run_as_the_user_of_the_image_without_privileges(name):
    (uid,) = re.findall(r"useradd --uid (\d+)", (ROOT / "docker" / "Dockerfile").read_text())
    spec = PODS[name]["spec"]
    user = spec["securityContext"]
    assert user["runAsNonRoot"] is True
    assert {user["runAsUser"], user["runAsGroup"], user["fsGroup"]} == {int(uid)}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert ("automountServiceAccountToken" in spec) == (name == "executor")


def test_the_version_of_spark_is_that_of_the_lock():
    version = APPLICATION["spec"]["runtimeVersions"]["sparkVersion"]
    assert f"\npyspark=={version} " in (ROOT / "requirements" / "stores.txt").read_text()
