"""Two servers with one exports file, whose sessions are in the database."""

import os
import signal
import subprocess
import time

from nfs import Client, Place
from pair import SCHEMA
from servers import Server

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
    longer than the lease ends no process."""
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
        second.signal(signal.SIGTERM)
        second.wait_end(0)
        assert holders(database) == [""], f"leases are left: {holders(database)}"
    finally:
        for server in servers:
            server.kill()
        if client:
            client.close()
    return f"2 sessions over {len(client.times)} calls"


def check(client, roots, files, name):
    """What was made is there, by the handles from before; and more can be made, once."""
    for number, (root, file) in enumerate(zip(roots, files)):
        found = client.read(file)
        assert found == f"of {number}".encode(), found
        assert client.lookup(root, b"file") == file, "another handle"
        before = client.names(root)
        client.mkdir(root, name)
        assert client.names(root) == before | {name}
