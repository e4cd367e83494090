"""The database, and the servers whose sessions are in it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from proxy import Proxy

REPO = Path(__file__).resolve().parent.parent.parent
CLUSTER = REPO / "integration" / "lib" / "postgres"

# A server does not listen, or does not end, in so many seconds: the run fails.
PATIENCE = 60

# The exit status of a server that has lost its session.
LOST = 75


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Database:
    """A private cluster, whose commits reach the disk."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.start()
        self.owner = re.match(r"postgres://([^@]*)@", self._run("url")).group(1)
        self.data = Path((folder / "place").read_text().strip()) / "data"

    def _run(self, *args):
        environment = {**os.environ, "DURABLE": "1", "PORT": str(self.port)}
        command = [CLUSTER, args[0], self.folder, *args[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self):
        self._run("start")

    def stop(self):
        self._run("stop")

    def kill(self):
        """As after a crash: what was not committed is gone."""
        bin_dir = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
        command = [bin_dir[-1] if bin_dir else "pg_ctl", "-D", self.data, "-m", "immediate", "stop"]
        if os.geteuid() == 0:
            command = ["runuser", "-u", self.owner, "--", *command]
        subprocess.run(command, check=True, capture_output=True)

    def command(self, program, database="postgres"):
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.owner]
        return [program, *place, "-d", database]

    def sql(self, text, database="postgres"):
        command = self.command("psql", database)
        command += ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}: {done.stderr}"
        return done.stdout.rstrip("\n")

    def dump(self, schema):
        command = [*self.command("pg_dump"), "-n", schema]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def row(self, schema, name):
        """(epoch, seq, holder) of a session."""
        found = self.sql(f"SELECT epoch, seq, holder FROM {schema}.session WHERE name = '{name}'")
        epoch, seq, holder = found.split("|")
        return int(epoch), int(seq), holder


class Server:
    """An `acetate serve` with a replica of its own, which reaches the database through a proxy."""

    def __init__(self, run, name, database, session, lease):
        self.run, self.name, self.database = run, name, database
        self.session, self.lease = session, lease
        self.proxy = Proxy(database.port)
        self.port = free_port()
        self.local = run / f"local-{name}"
        self.log = run / f"server-{name}.log"
        self.process = None
        self.begun_at = 0

    def url(self, session=None):
        place = f"{self.database.owner}@127.0.0.1:{self.proxy.port}/postgres"
        return f"postgres://{place}/{session or self.session}"

    def start(self, standby=False, options=(), url=None):
        command = [os.environ["ACETATE"], "serve", url or self.url(), "--insecure"]
        command += ["--local", self.local, "--listen", f"127.0.0.1:{self.port}", "--log", "info"]
        command += ["--on-lease", self.run / "on-lease", "--lease", str(self.lease), *options]
        command += ["--standby"] if standby else []
        environment = {
            **os.environ,
            "SERVES_AT": f"127.0.0.1:{self.port}",
            "PLACE": str(self.run / "place"),
        }
        self.local.mkdir(mode=0o700, exist_ok=True)
        self.begun_at = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=log, env=environment
            )
        if standby:
            self.wait_for("waiting until")

    def said(self):
        """What the process has written."""
        with open(self.log, "rb") as log:
            log.seek(self.begun_at)
            return log.read().decode()

    def wait_for(self, text, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while text not in self.said():
            status = self.process.poll()
            assert status is None, f"{self.name} ended with {status}: {self.said()}"
            assert time.monotonic() < end, f"{self.name} does not say {text!r}: {self.said()}"
            time.sleep(0.01)

    def wait_listening(self):
        self.wait_for("listening on")

    def is_listening(self):
        return "listening on" in self.said()

    def signal(self, number):
        self.process.send_signal(number)

    def wait_end(self, *statuses):
        status = self.process.wait(PATIENCE)
        assert status in statuses, f"{self.name} ended with {status}: {self.said()}"
        self.process = None
        return status

    def stop(self):
        self.signal(signal.SIGTERM)
        self.wait_end(0)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def replica(self):
        found = [path for path in self.local.iterdir() if path.suffix == ".db"]
        assert len(found) == 1, found
        return found[0]

    def forget_replica(self):
        shutil.rmtree(self.local, ignore_errors=True)


def ended(command, seconds=PATIENCE, **environment):
    """Status and words of a command that ends by itself."""
    environment = {**os.environ, **environment}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
        timeout=seconds,
    )
    return done.returncode, done.stdout + done.stderr
