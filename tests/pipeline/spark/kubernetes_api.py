"""A small API server of Kubernetes that runs pods as processes of this machine.

It keeps what Spark asks for: pods, services, maps of configuration. A pod's container is started by
`docker/entrypoint.sh`, as the image would; what is mounted into it lies in a folder, and paths and
names that only a cluster knows are replaced in its words, variables and files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.checkout import ROOT

Object = dict[str, Any]
_KINDS = {"pods": "Pod", "services": "Service", "configmaps": "ConfigMap"}


@dataclass
class Machine:
    """Where pods run, and all that the API server knows.

    Attributes:
      folder: Takes what is mounted, and logs.
      environment: Of the image.
      secrets: Contents by name of secret and key.
      replaced: What a cluster would resolve, to what stands for it here.
      objects: By kind and name.
      asked: All pods as they were asked for, in their order.
      processes: Of pods.
    """

    folder: Path
    environment: Mapping[str, str]
    secrets: Mapping[str, Mapping[str, str]]
    replaced: dict[str, str]
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    asked: list[Object] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    history: list[tuple[str, Object]] = field(default_factory=list)

    def keep(self, kind: str, event: str, one: Object) -> None:
        """Store an object, or remove it, and tell who watches."""
        with self.changed:
            one["metadata"]["resourceVersion"] = str(len(self.history) + 1)
            key = (kind, one["metadata"]["name"])
            if event == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = one
            self.history.append((event, json.loads(json.dumps(one))))
            self.changed.notify_all()

    def create(self, kind: str, one: Object) -> Object:
        """Take an object as a client made it; a pod is started."""
        one.setdefault("metadata", {})
        one["metadata"].setdefault("name", f"made-{uuid.uuid4().hex[:8]}")
        one["metadata"].setdefault("namespace", "default")
        one["metadata"]["uid"] = str(uuid.uuid4())
        one["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        one.setdefault("kind", _KINDS.get(kind, kind))
        one.setdefault("apiVersion", "v1")
        if kind == "pods":
            self.asked.append(json.loads(json.dumps(one)))
            one["status"] = {"phase": "Pending"}
        self.keep(kind, "ADDED", one)
        if kind == "pods":
            threading.Thread(target=self._run, args=(one,), daemon=True).start()
        return one

    def _run(self, pod: Object) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        for _ in range(100):  # maps of configuration come after the pod that mounts them
            missing = [v for v in pod["spec"].get("volumes", []) if not self._is_there(v)]
            if not missing:
                break
            time.sleep(0.1)
        replaced = dict(self.replaced)
        folders = {v["name"]: self._mounted(name, v) for v in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            replaced[mount["mountPath"]] = str(folders[mount["name"]])

        def here(text: str) -> str:
            for theirs in sorted(replaced, key=len, reverse=True):
                text = text.replace(theirs, replaced[theirs])
            return re.sub(r"[\w-]+-driver-svc\.default\.svc", "127.0.0.1", text)

        for path in (file for folder in folders.values() for file in folder.iterdir()):
            path.write_text(here(path.read_text()))
        variables = {one["name"]: self._value(one, name, here) for one in container.get("env", [])}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [ROOT / "docker" / "entrypoint.sh", *map(here, container.get("args", []))],
                env={**self.environment, **variables},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        self._phase(
            pod, "Running", {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        )
        code = process.wait()
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        self._phase(pod, "Failed" if code else "Succeeded", ended)

    def _value(self, variable: Object, pod: str, here: Callable[[str], str]) -> str:
        """Of a variable, whatever it refers to."""
        if "valueFrom" not in variable:
            return here(variable.get("value") or "")
        if found := variable["valueFrom"].get("secretKeyRef"):
            return self.secrets[found["name"]][found["key"]]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod}
        return fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]

    def _phase(self, pod: Object, phase: str, state: Object) -> None:
        container = pod["spec"]["containers"][0]["name"]
        pod["status"] = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "containerStatuses": [{"name": container, "ready": phase == "Running", "state": state}],
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
        }
        if ("pods", pod["metadata"]["name"]) in self.objects:
            self.keep("pods", "MODIFIED", pod)

    def _is_there(self, volume: Object) -> bool:
        return (
            "configMap" not in volume or ("configmaps", volume["configMap"]["name"]) in self.objects
        )

    def _mounted(self, pod: str, volume: Object) -> Path:
        folder = self.folder / pod / volume["name"]
        folder.mkdir(parents=True)
        contents: Mapping[str, str] = {}
        if "configMap" in volume:
            contents = self.objects["configmaps", volume["configMap"]["name"]].get("data", {})
        elif "secret" in volume:
            contents = self.secrets[volume["secret"]["secretName"]]
        items = (volume.get("configMap") or volume.get("secret") or {}).get("items", [])
        paths = {item["key"]: item["path"] for item in items}
        for key, text in contents.items():
            if key in paths or not paths:
                (folder / paths.get(key, key)).write_text(text)
        return folder


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *words: object) -> None:
        """Say nothing."""

    def _answer(self, body: Object, code: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _place(self) -> tuple[str, str, dict[str, list[str]]]:
        """Kind, name or nothing, and what is asked besides."""
        parts = urlsplit(self.path)
        found = re.fullmatch(r"/apis?/.*?namespaces/default/(\w+)/?([^/]*)", parts.path)
        return (found[1], found[2], parse_qs(parts.query)) if found else ("", "", {})

    def _body(self) -> Object:
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length) or b"{}")

    def _missing(self, name: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"}
        self._answer({**status, "code": 404, "message": f"{name} not found"}, 404)

    def _chosen(self, kind: str, asked: dict[str, list[str]]) -> list[Object]:
        selector = asked.get("labelSelector", [""])[0]
        pairs = re.findall(r"([\w./-]+)(!?=)([^,]*)", selector)
        name = re.findall(r"metadata\.name=([^,]+)", asked.get("fieldSelector", [""])[0])
        return [
            one
            for (a_kind, a_name), one in list(self.server.machine.objects.items())
            if a_kind == kind
            and (not name or a_name == name[0])
            and all(
                (one["metadata"].get("labels", {}).get(key) == value) == (sign == "=")
                for key, sign, value in pairs
            )
        ]

    def do_GET(self) -> None:
        kind, name, asked = self._place()
        machine = self.server.machine
        if self.headers.get("Upgrade"):  # then clients watch by a plain answer that does not end
            self._answer({"kind": "Status", "status": "Failure", "code": 503}, 503)
        elif asked.get("watch") == ["true"]:
            self._watch(kind, asked)
        elif name:
            one = machine.objects.get((kind, name))
            self._answer(one) if one else self._missing(name)
        else:
            of = _KINDS.get(kind, "")
            version = {"resourceVersion": str(len(machine.history))}
            items = self._chosen(kind, asked)
            self._answer(
                {"kind": f"{of}List", "apiVersion": "v1", "metadata": version, "items": items}
            )

    def _watch(self, kind: str, asked: dict[str, list[str]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        machine, seen = self.server.machine, int(asked.get("resourceVersion", ["0"])[0] or 0)
        while not self.server.is_ending:
            with machine.changed:
                machine.changed.wait(0.2)
                events, seen = machine.history[seen:], len(machine.history)
            for event, one in events:
                if one["kind"] == _KINDS.get(kind) and self._is_chosen(one, kind, asked):
                    line = json.dumps({"type": event, "object": one}).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()

    def _is_chosen(self, one: Object, kind: str, asked: dict[str, list[str]]) -> bool:
        name = one["metadata"]["name"]
        return any(other["metadata"]["name"] == name for other in self._chosen(kind, asked))

    def do_POST(self) -> None:
        kind, _, _ = self._place()
        body = self._body()
        if body.get("kind") == "List":
            body = body["items"][0]
        self._answer(self.server.machine.create(kind, body), 201)

    def do_PATCH(self) -> None:
        kind, name, _ = self._place()
        body = self._body()
        one = self.server.machine.objects.get((kind, name))
        if one is None:  # applied by the server, which then makes it
            self._answer(self.server.machine.create(kind, body), 201)
            return
        if isinstance(body, dict):
            labels = body.get("metadata", {}).get("labels") or {}
            one["metadata"].setdefault("labels", {}).update(labels)
        self._answer(one)

    do_PUT = do_PATCH  # noqa: N815, as the base class looks for it

    def do_DELETE(self) -> None:
        kind, name, asked = self._place()
        machine = self.server.machine
        one = machine.objects.get((kind, name))
        for gone in [one] if one else [] if name else self._chosen(kind, asked):
            machine.keep(kind, "DELETED", gone)
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    machine: Machine
    is_ending = False


@contextmanager
def api_server(
    folder: Path, environment: Mapping[str, str], secrets: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, Machine]]:
    """Serve on a loopback port; gives the address and the machine, whose pods end with it."""
    server = _Server(("127.0.0.1", 0), _Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    names = {"/opt/das": str(ROOT)}
    server.machine = Machine(folder, {**os.environ, **environment}, secrets, names)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield url, server.machine
    finally:
        server.is_ending = True
        for process in server.machine.processes:
            process.terminate()
        for process in server.machine.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        server.shutdown()
        server.server_close()
        thread.join()
