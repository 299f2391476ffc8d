"""The image and the compose file, against what they name: files, versions, programs, classes.

Nothing here builds or starts a container; the entry point runs with programs that only say how they
were called.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pyspark
import pytest
import yaml

from jobs.pipeline.config.protection import ENCRYPT_FILES, NAME_OF_SECRET, missing_protection
from jobs.pipeline.tasks.java import SUPPORTED_JAVA
from tests.checkout import ROOT

SPARK = Path(pyspark.__file__).parent
ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
PACKAGES = {"das", "geography", "invariants", "solvers", "jobs"}
KUBERNETES = {
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_APPLICATION_ID": "app-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dfirst=a b",
}


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile, continued lines joined."""
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def of(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in of("ENV") for pair in rest.split())


def python_of_image() -> str:
    (image,) = of("FROM")
    return re.fullmatch(r"python:(\d+\.\d+)-slim-bookworm", image).group(1)


# --- Dockerfile ----------------------------------------------------------------------------------


def test_the_image_has_the_python_of_the_lock():
    version = python_of_image()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, version.split("."))) >= tuple(map(int, least.split(".")))
    assert f"--python-version {version} " in (ROOT / "Makefile").read_text()


def test_all_that_is_copied_exists_and_is_all_that_is_needed():
    sources = [word for rest in of("COPY") for word in rest.split()[:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    needed = {"pyproject.toml", "README.md", "LICENSE", "requirements/stores.txt", "conf"}
    assert needed | {*PACKAGES} <= set(sources)


def test_the_build_is_handed_what_is_copied_and_nothing_that_is_secret_or_large():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    sources = {word.removeprefix("./") for rest in of("COPY") for word in rest.split()[:-1]}
    assert {path for path in sources if path not in let_in} == {"requirements/stores.txt"}
    assert let_in - sources == {"requirements"}


def test_the_image_has_a_java_that_sessions_accept():
    (version,) = re.findall(r"openjdk-(\d+)-jre", " ".join(of("RUN")))
    assert int(version) in SUPPORTED_JAVA


def test_spark_is_where_the_image_says_and_of_the_version_that_is_tested():
    site_packages = f"/usr/local/lib/python{python_of_image()}/site-packages"
    assert environment()["SPARK_HOME"] == f"{site_packages}/{SPARK.name}"
    lock = (ROOT / "requirements" / "stores.txt").read_text()
    assert f"\npyspark=={pyspark.__version__} " in lock


def test_the_image_starts_the_entry_point_as_an_ordinary_user():
    (entry,) = map(json.loads, of("ENTRYPOINT"))
    assert entry[-1] == f"{of('WORKDIR')[0]}/{ENTRYPOINT.relative_to(ROOT)}"
    assert os.access(ENTRYPOINT, os.X_OK)
    assert Path(entry[0]).name in " ".join(of("RUN"))
    (user,) = of("USER")
    assert f"useradd --uid {user}" in " ".join(of("RUN"))


def linted(dockerfile: str) -> str:
    """What hadolint of the test environment says of a Dockerfile; empty if all is well."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--no-color", "-"], input=dockerfile, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) == bool(done.returncode)
    return done.stdout


def test_lint_refuses_nothing_of_the_dockerfile_and_sees_faults():
    text = (ROOT / "docker" / "Dockerfile").read_text()
    assert linted(text) == ""
    assert "DL3008" in linted(text.replace("tini=0.19.*", "tini"))
    assert "DL3042" in linted(text.replace("--no-cache-dir ", ""))


def test_what_reads_releases_is_locked_at_the_versions_of_what_makes_them():
    pins = [
        set(re.findall(r"^[\w-]+==\S+", (ROOT / "requirements" / f"{name}.txt").read_text(), re.M))
        for name in ("analysis", "run", "test")
    ]
    assert pins[0] < pins[1] < pins[2]
    assert not {pin for pin in pins[0] if pin.startswith(("pyspark", "numba", "ortools", "pandas"))}


# --- entry point ---------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs that print their own name and arguments, one a line."""
    for name in ("java", "das", "spark-submit", "spark-class"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/bash\nprintf "%s\\n" "${0##*/}" "$@"\n')
        path.chmod(0o755)
    return tmp_path


def called(programs: Path, *words: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [ENTRYPOINT, *words],
        env={
            "PATH": f"{programs / 'bin'}:/usr/bin:/bin",
            "SPARK_HOME": str(programs),
            **variables,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_an_executor_is_started_as_spark_says_by_the_environment(programs):
    words = called(programs, "executor", **KUBERNETES)
    assert words[:5] == ["java", "-Dfirst=a b", "-Dlast=1", "-Xms2g", "-Xmx2g"]
    assert words[5:7] == ["-cp", f"{programs}/conf:{programs}/jars/*"]
    name = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert words[7] == name
    assert dict(zip(words[8::2], words[9::2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "4",
        "--app-id": "app-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_an_executor_takes_the_java_and_class_path_it_is_given(programs):
    extra = {
        "JAVA_HOME": str(programs),
        "SPARK_CLASSPATH": "/x/*",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "PATH": "/usr/bin:/bin",
    }
    words = called(programs, "executor", **KUBERNETES | extra)
    assert words[words.index("-cp") + 1] == f"/opt/spark/conf:{programs}/jars/*:/x/*"


def test_a_driver_is_submitted_in_client_mode(programs):
    words = called(
        programs, "driver", "--class", "a b", "x.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1"
    )
    assert words[0] == "spark-submit"
    assert "spark.driver.bindAddress=10.0.0.1" in words
    assert words[-5:] == ["--deploy-mode", "client", "--class", "a b", "x.py"]


@pytest.mark.parametrize(
    ("given", "run"),
    [
        (["run", "a b.yaml"], ["das", "run", "a b.yaml"]),
        (["--help"], ["das", "--help"]),
        ([], ["das", "--help"]),
        (["spark-class", "x.Y"], ["spark-class", "x.Y"]),
        (["spark-submit", "--master", "m"], ["spark-submit", "--master", "m"]),
    ],
)
def test_other_words_are_those_of_das(programs, given, run):
    assert called(programs, *given) == run


def test_spark_knows_the_names_that_the_entry_point_uses():
    """Of the installed version: the variables it sets, the class and the options it takes."""
    (archive,) = (SPARK / "jars").glob("spark-kubernetes_*.jar")
    script = ENTRYPOINT.read_text()
    with zipfile.ZipFile(archive) as jar:
        constants = jar.read("org/apache/spark/deploy/k8s/Constants$.class")
        (backend,) = re.findall(r"org\.apache\.spark\.[\w.]+Backend", script)
        options = jar.read(f"{backend.replace('.', '/')}$.class")
    ours = {"SPARK_HOME"}  # of the image
    variables = set(re.findall(r"\bSPARK_\w+", script)) - ours - {"SPARK_JAVA_OPT_0"}
    assert [name for name in sorted(variables) if name.encode() not in constants] == []
    named = re.findall(r"^ +(--\w[\w-]*) \"", script[script.index(backend) :], re.MULTILINE)
    assert len(named) == 7
    assert [name for name in named if name.encode() not in options] == []


# --- compose -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())


def words_of(service: dict) -> list[str]:
    return [*service.get("entrypoint", []), *service.get("command", [])]


def test_services_share_image_and_volume(compose):
    assert set(compose["services"]) == {"secret", "master", "worker-1", "worker-2", "submit"}
    for service in compose["services"].values():
        assert service["image"] == "das:local"
        build = service["build"]
        context = ROOT / "docker" / build["context"]
        assert (context / build["dockerfile"]).resolve() == ROOT / "docker" / "Dockerfile"
        (mount,) = service["volumes"]
        volume, path = mount.split(":")
        assert volume in compose["volumes"]
        assert path in of("VOLUME")
        assert set(service.get("depends_on", [])) <= set(compose["services"])


def test_services_run_programs_and_classes_that_spark_has(compose):
    (archive,) = (SPARK / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(archive) as jar:
        classes = set(jar.namelist())
    for service in compose["services"].values():
        words = words_of(service)
        if words[0] == "bash":  # the entry point runs it as it is
            continue
        assert (SPARK / "bin" / words[0]).exists()
        for name in (word for word in words if word.startswith("org.apache.spark.")):
            assert f"{name.replace('.', '/')}.class" in classes


def test_workers_and_submit_find_the_master(compose):
    services = compose["services"]
    words = words_of(services["master"])
    host, port = words[words.index("--host") + 1], words[words.index("--port") + 1]
    assert host == services["master"]["hostname"]
    url = f"spark://{host}:{port}"
    assert words_of(services["worker-1"])[-1] == words_of(services["worker-2"])[-1] == url
    submit = words_of(services["submit"])
    assert submit[submit.index("--master") + 1] == url
    assert f"spark.driver.host={services['submit']['hostname']}" in submit


def test_all_of_the_cluster_share_a_secret_that_is_made_once(compose, tmp_path):
    services = dict(compose["services"])
    made = words_of(services.pop("secret"))[-1]
    mount = services["master"]["volumes"][0].split(":")[1]
    files = {
        words[words.index("--properties-file") + 1] for words in map(words_of, services.values())
    }
    (file,) = files
    assert file.startswith(f"{mount}/")
    command = made.replace(mount, str(tmp_path))
    written = tmp_path / Path(file).relative_to(mount)
    contents = []
    for _ in range(2):
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True)
        contents.append(written.read_text())
    assert contents[0] == contents[1]
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    properties = dict(line.split() for line in contents[0].splitlines())
    assert len(bytes.fromhex(properties.pop(NAME_OF_SECRET))) == 32
    assert missing_protection(properties) == (ENCRYPT_FILES,)  # set by the program
    assert "service_completed_successfully" in str(services["master"]["depends_on"]["secret"])


def test_submit_runs_the_entry_point_of_the_project(compose):
    home, entry = of("WORKDIR")[0], words_of(compose["services"]["submit"])[-1]
    assert (ROOT / Path(entry).relative_to(home)).exists()


def test_executors_fit_into_workers(compose):
    worker, submit = (words_of(compose["services"][name]) for name in ("worker-1", "submit"))
    memory = int(worker[worker.index("--memory") + 1].removesuffix("g"))
    (wanted,) = (word for word in submit if word.startswith("spark.executor.memory="))
    assert int(wanted.split("=")[1].removesuffix("g")) <= memory


# --- recipes -------------------------------------------------------------------------------------


def test_properties_named_in_recipes_are_sparks():
    """Every key is one that the installed Spark defines, or of a family it builds names of."""
    known = known_properties()
    page = (ROOT / "docs" / "cluster.md").read_text()
    conf = [path.read_text() for path in (ROOT / "conf" / "cluster").glob("*.yaml")]
    conf.append((ROOT / "docker" / "kubernetes" / "spark.conf").read_text())
    keys = set(re.findall(r"(?<![\w.])spark\.[a-z]\w*(?:\.[\w]+)+", "\n".join([page, *conf])))
    keys.remove("spark.apache.org")  # a group of resources
    free = (
        "spark.executorEnv.",
        "spark.kubernetes.authenticate.driver.",
        "spark.kubernetes.authenticate.executor.",
        "spark.kubernetes.driver.volumes.",
        "spark.kubernetes.executor.secretKeyRef.",
        "spark.kubernetes.executor.volumes.",
        "spark.yarn.appMasterEnv.",
    )
    unknown = [key for key in keys if key not in known and not key.startswith(free)]
    assert len(keys) > 5
    assert unknown == []


def known_properties() -> set[str]:
    """Texts like names of properties in the classes of Spark's jars."""
    found: set[str] = set()
    names = ("core", "kubernetes", "yarn", "network-common", "connect")
    for name in (f"spark-{name}_*" for name in names):
        (archive,) = (SPARK / "jars").glob(f"{name}.jar")
        with zipfile.ZipFile(archive) as jar:
            for inside in jar.namelist():
                if re.search(
                    r"config/package\$|/Config\$|/Connect\$|SparkLauncher|SparkConf|TransportConf",
                    inside,
                ):
                    texts = re.findall(rb"spark\.[\w.]+", jar.read(inside))
                    found |= {text.decode() for text in texts}
    return found


def test_commands_of_shells_parse():
    for page in ("docs/cluster.md", "docker/README.md", "docs/operations.md"):
        text = (ROOT / page).read_text()
        for body in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            subprocess.run(["bash", "-n"], input=body, text=True, check=True)
            shlex.split(body.replace("\\\n", " "), comments=True)
    assert sys.version_info >= (3, 11)
