"""Two servers with one exports file, whose sessions are in the database."""

import os
import signal
import socket
import struct
import subprocess
import threading
import time

from nfs import GETATTR, JUKEBOX, NFS, READ, Client, Place, opaque, read_record, record, results
from pair import SCHEMA
from servers import PATIENCE, Server

SESSIONS = ("exports/one", "exports/two")


class ExportsServer(Server):
    """An `acetate serve --config` with replicas of its own."""

    def start(self):
        self.local.mkdir(mode=0o700, exist_ok=True)
        exports = self.run / f"exports-{self.name}.toml"
        exports.write_text("".join(self.export(session) for session in SESSIONS))
        command = [os.environ["ACETATE"], "serve", "--config", exports, "--local", self.local]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        self.begun_at = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        self.wait_listening()

    def export(self, session):
        url = f"{self.url(session)}?schema={SCHEMA}"
        options = 'options = ["insecure", "no_root_squash"]'
        mount = f'[[export.mount]]\nat = "/"\nsession = "{url}"\n'
        return f'[[export]]\npath = "/{session}"\n{options}\n{mount}'


def holders(database):
    found = database.sql(f"SELECT DISTINCT holder FROM {SCHEMA}.session")
    return found.split("\n")


def run(suite):
    """kill -9 of one, and the other one answers the same handles; a database that is away for
    longer than the lease ends no process; one that was frozen answers nothing that is old."""
    database = suite.database
    database.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;")
    place = suite.run / "exports-place"
    servers = [ExportsServer(suite.run, name, database, SESSIONS[0], suite.lease) for name in "ab"]
    first, second = servers
    client = None
    try:
        for server in servers:
            server.forget_replica()
            server.start()
        place.write_text(f"127.0.0.1:{first.port}")
        client = Client(Place(place))
        roots = [client.mount(f"/{session}".encode()) for session in SESSIONS]
        files = [client.create_guarded(root, b"file") for root in roots]
        for number, file in enumerate(files):
            client.write(file, 0, f"of {number}".encode())
        since = time.monotonic()
        first.kill()
        place.write_text(f"127.0.0.1:{second.port}")
        check(client, roots, files, b"after the kill")
        suite.stalled("kill -9, exports", max(end - begun for begun, end in client.times
                                              if end > since))
        second.proxy.is_partitioned = True
        time.sleep(2 * suite.lease)
        second.proxy.is_partitioned = False
        check(client, roots, files, b"after the partition")
        assert second.process.poll() is None, second.said()
        first.start()
        freeze(suite, client, place, (second, first), (roots, files))
        first.proxy.is_partitioned = True
        # A change waits for the database, and the server stops all the same.
        waiting = threading.Thread(target=lambda: client.mkdir(roots[0], b"waits"))
        waiting.start()
        time.sleep(0.3)
        first.signal(signal.SIGTERM)
        first.wait_end(0)
        place.write_text(f"127.0.0.1:{second.port}")
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        check(client, roots, files, b"after the stop")
        second.signal(signal.SIGTERM)
        second.wait_end(0)
        assert holders(database) == [""], f"leases are left: {holders(database)}"
    finally:
        for server in servers:
            server.kill()
        if client:
            client.close()
    return f"2 sessions over {len(client.times)} calls"


def freeze(suite, client, place, servers, made):
    """The holder is frozen for twice the lease, while the other server changes its sessions."""
    holder, other = servers
    roots, files = made
    old = Client(Place(place))
    assert old.read(files[0]) == b"of 0"
    holder.signal(signal.SIGSTOP)
    try:
        place.write_text(f"127.0.0.1:{other.port}")
        check(client, roots, files, b"while it is frozen")
        for number, file in enumerate(files):
            client.write(file, 0, f"OF {number}".encode())
        probes = [socket.create_connection(("127.0.0.1", holder.port)) for _ in files]
        for number, (probe, file) in enumerate(zip(probes, files)):
            probe.sendall(record(number, NFS, READ, opaque(file) + struct.pack(">QI", 0, 8)))
            probe.sendall(record(10 + number, NFS, GETATTR, opaque(file)))
    finally:
        holder.signal(signal.SIGCONT)
    for number, probe in enumerate(probes):
        for xid in (number, 10 + number):
            reply = read_record(probe, lambda end=time.monotonic() + 5: time.monotonic() > end)
            if reply is None:
                break
            xid = struct.unpack_from(">I", reply)[0]
            status = struct.unpack_from(">I", results(reply, xid))[0]
            assert status == JUKEBOX, f"a server without the session answered {status}"
        probe.close()
    for number, file in enumerate(files):
        client.write(file, 0, f"of {number}".encode())
    old.close()


def check(client, roots, files, name):
    """What was made is there, by the handles from before; and more can be made, once."""
    for number, (root, file) in enumerate(zip(roots, files)):
        found = client.read(file)
        assert found == f"of {number}".encode(), found
        assert client.lookup(root, b"file") == file, "another handle"
        before = client.names(root)
        client.mkdir(root, name)
        assert client.names(root) == before | {name}
