"""A real HDFS: a NameNode and a DataNode on the loopback address, with permissions.

Honours create without overwrite and rename without overwrite, as every HDFS; users are who they say
they are (no Kerberos), and permissions are enforced: tests are the ordinary user `das`, who owns the
place that they are given. No encryption zones.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hdfs_native import Client, WriteOptions

from tests.pipeline.spark.cluster import free_port
from tests.servers.hadoop import java_command, write_properties
from tests.servers.processes import running, wait_until
from tests.servers.store import StoreServer

USER = "das"
# The client's own settings wait three minutes for a NameNode that is not there.
_SOON = {"dfs.client.failover.max.attempts": "1"}


@contextmanager
def hdfs_server(folder: Path) -> Iterator[StoreServer]:
    """Start HDFS with an empty folder that belongs to `USER`.

    Args:
      folder: An empty folder for data, configuration and logs.
    """
    configuration = folder / "hadoop"
    configuration.mkdir(parents=True)
    port = free_port()
    root = f"hdfs://127.0.0.1:{port}"
    write_properties(
        configuration / "core-site.xml",
        {"fs.defaultFS": root, "hadoop.tmp.dir": folder / "tmp"},
    )
    write_properties(
        configuration / "hdfs-site.xml",
        {
            "dfs.replication": 1,
            "dfs.namenode.name.dir": f"file://{folder}/names",
            "dfs.namenode.http-address": "127.0.0.1:0",
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.namenode.safemode.extension": 0,
            "dfs.datanode.data.dir": f"file://{folder}/blocks",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.webhdfs.enabled": "false",
        },
    )
    names, blocks = (
        java_command(configuration, f"hdfs.server.{main}")
        for main in ("namenode.NameNode", "datanode.DataNode")
    )
    log = folder / "hdfs.log"
    with log.open("ab") as output:
        words = [*names, "-format", "-nonInteractive"]
        subprocess.run(words, stdout=output, stderr=output, check=True)
    server = StoreServer(
        f"{root}/user/{USER}",
        {"HADOOP_CONF_DIR": str(configuration), "HADOOP_USER_NAME": USER},
    )
    with ExitStack() as stack:
        stack.enter_context(running(names, log))
        node = stack.enter_context(running(blocks, log))
        superuser = Client(root, _SOON)
        wait_until(lambda: _takes_blocks(superuser), node, log)
        _give(superuser, f"/user/{USER}")
        yield server


def _takes_blocks(superuser: Client) -> bool:
    with superuser.create("/.started", WriteOptions(overwrite=True)) as file:
        file.write(b"started")
        file.hsync()
    return superuser.delete("/.started")


def _give(superuser: Client, folder: str) -> None:
    superuser.mkdirs(folder, 0o755, True)
    superuser.set_permission(folder, 0o700)
    superuser.set_owner(folder, USER, USER)
    superuser.mkdirs("/tmp", 0o1777, True)
