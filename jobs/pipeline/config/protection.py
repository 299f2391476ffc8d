"""Properties that protect a Spark session from other users, and checks that they are on.

A session listens on ports: its driver, its block manager, and on a cluster all its executors. Who
connects there without a password could fetch what tasks carry, or run code as the session's user.
So every session asks for a secret, and encrypts what crosses the network or is spilled to disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from das.errors import RuntimeSetupError

AUTHENTICATE = "spark.authenticate"
NAME_OF_SECRET = "spark.authenticate.secret"
ENCRYPT_NETWORK = "spark.network.crypto.enabled"
ENCRYPT_NETWORK_BY_SSL = "spark.ssl.rpc.enabled"
ENCRYPT_FILES = "spark.io.encryption.enabled"
PROTECTION: Mapping[str, str] = {
    AUTHENTICATE: "true",
    ENCRYPT_NETWORK: "true",
    ENCRYPT_FILES: "true",
}

REMOTE_VARIABLE = "SPARK_REMOTE"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_REMOTE = "sc://"

# Of properties whose value is a secret; others name files or sizes of secrets.
_SECRET = re.compile(r"(secret|password|token|(access|secret)\.?key)$", re.IGNORECASE)
# Of parameters of a URL; the others are sent as headers.
_SECRET_PARAMETER = re.compile(r"secret|passw|token|key$|auth|credential", re.IGNORECASE)


def is_local(master: str) -> bool:
    """Return whether a master runs threads in the driver's Java process."""
    return master == "local" or master.startswith("local[")


def is_remote(master: str) -> bool:
    """Return whether a master is the URL of a Spark Connect server."""
    return master.startswith(_REMOTE)


def remote_problem(url: str) -> str | None:
    """Return why a URL is not that of a Spark Connect server, without quoting it; else None."""
    form = "must be sc://host:port, then perhaps /;name=value;name=value"
    try:
        parts = urlsplit("//" + url.removeprefix(_REMOTE))
        port = parts.port
    except ValueError:
        return form
    path, *parameters = parts.path.split(";")
    named = all(re.fullmatch(r"[^=]+=[^=]*", parameter) for parameter in parameters)
    is_one = is_remote(url) and parts.hostname and port != 0 and path in ("", "/") and named
    extra = parts.query or parts.fragment
    return None if is_one and not extra else form


def remote_secret(url: str) -> str | None:
    """Name the secret in the URL of a Spark Connect server: a parameter, or the user.

    Args:
      url: The URL, whether or not it is a valid one.
    """
    text = url.removeprefix(_REMOTE)
    for parameter in text.split(";")[1:]:
        name = parameter.partition("=")[0]
        if _SECRET_PARAMETER.search(name):
            return name
    return "user" if "@" in text.split("/")[0] else None


def refuse_bad_remote(master: str | None) -> str | None:
    """Return a Spark master, unless it is an invalid URL or holds a secret.

    Raises:
      ValueError: The URL of a Spark Connect server holds a secret, or is invalid. The text quotes
        nothing of the URL but the name of a parameter.
    """
    if master is None or not is_remote(master):
        return master
    secret = remote_secret(master)
    if secret is not None:
        raise ValueError(
            f"holds a secret ({secret}): neither a run file nor a command line is a place for one; "
            f"give the whole URL by the environment variable {REMOTE_VARIABLE} and no master, or "
            f"the token alone by {TOKEN_VARIABLE}"
        )
    problem = remote_problem(master)
    if problem is not None:
        raise ValueError(problem)
    return master


def missing_protection(properties: Mapping[str, str]) -> tuple[str, ...]:
    """List the names of protecting properties that are not on in a session.

    Args:
      properties: All properties of the session. Absent properties are off, which is the default of
        Spark.
    """
    on = {name for name, value in properties.items() if value.strip().lower() == "true"}
    if ENCRYPT_NETWORK_BY_SSL in on:
        on.add(ENCRYPT_NETWORK)
    return tuple(name for name in PROTECTION if name not in on)


def protection_of(
    master: str, properties: Mapping[str, str], *, allow_open: bool
) -> dict[str, str]:
    """Return the protecting properties with which to start a session.

    Args:
      master: Spark master of the session; empty if it was given to spark-submit.
      properties: The other properties that will be set.
      allow_open: Whether the session may lack protection. A cluster then keeps its own settings;
        local threads are protected unless a property turns protection off.
    """
    is_off = bool(missing_protection({**PROTECTION, **properties}))
    if allow_open and (is_off or not is_local(master)):
        return {ENCRYPT_FILES: PROTECTION[ENCRYPT_FILES]}
    return dict(PROTECTION)


def secret_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """List the properties whose value is a secret, such as `spark.authenticate.secret`."""
    return tuple(name for name in properties if _SECRET.search(name))


def refuse_open(properties: Mapping[str, str]) -> None:
    """Refuse to work in a session that strangers can enter or overhear.

    Raises:
      RuntimeSetupError: A protecting property is not on; the message names it and the remedy.
    """
    missing = missing_protection(properties)
    if missing:
        raise RuntimeSetupError(
            "Spark session",
            "is open to others on its machines or network, who could read what it works on",
            got=", ".join(f"{name} is not on" for name in missing),
            remedy="set them to true where the session is opened, and a secret of the cluster "
            "(docs/cluster.md); or accept the risk by `runtime.allow_open_cluster: true`, which "
            "the release then states",
        )


def lacks_secret(error: Exception) -> RuntimeSetupError | None:
    """Return a remedy if Spark did not start because the cluster secret is missing; else None."""
    if NAME_OF_SECRET not in str(error):
        return None
    return RuntimeSetupError(
        NAME_OF_SECRET,
        "is not given, and without a secret anyone on the network could enter the session",
        want="one secret for master, workers and spark-submit",
        remedy="make one by `python -c 'import secrets; print(secrets.token_hex(32))'`, write it "
        "to a properties file that only its owner can read, and give that file to all three by "
        "--properties-file (docs/cluster.md); or accept the risk by "
        "`runtime.allow_open_cluster: true`, which the release then states",
    )
