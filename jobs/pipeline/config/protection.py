"""Properties that protect a Spark session from other users, and checks that they are on.

A session listens on ports: its driver, its block manager, and on a cluster all its executors. Who
connects there without a password could fetch what tasks carry, or run code as the session's user.
So every session asks for a secret, and encrypts what crosses the network or is spilled to disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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


# Of properties whose value is a secret; others name files or sizes of secrets.
_SECRET = re.compile(r"(secret|password|token|(access|secret)\.?key)$", re.IGNORECASE)


def is_local(master: str) -> bool:
    """Return whether a master runs threads in the driver's Java process."""
    return master == "local" or master.startswith("local[")


def refuse_remote(master: str | None) -> str | None:
    """Return a Spark master, unless it is the URL of a Spark Connect server.

    Raises:
      ValueError: The URL names such a server, which has no RDDs. The text does not quote the URL,
        since it can hold a token.
    """
    if master is not None and master.startswith("sc://"):
        raise ValueError(
            "is a Spark Connect server, on which no task runs; name a master, such as local[4,4] "
            "or spark://host:7077, or use spark-submit"
        )
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
