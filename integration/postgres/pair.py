"""Two servers of one session and the clients that load it; and what must hold at the end."""

import os
import random
import socket
import struct
import time

from compare import compare
from load import Load
from nfs import (
    CREATE, GETATTR, JUKEBOX, LOOKUP, NFS, READ, SOME_MODE, WRITE, Place, read_record, record,
    opaque, results,
)
from servers import LOST, Server, ended

SCHEMA = "faults"

# Moves the "address".
ON_LEASE = """#!/bin/sh
echo "$SERVES_AT" >"$PLACE.new" && mv "$PLACE.new" "$PLACE"
"""

# Changes that must not be made twice; each names what no other change names.
ONCE = ("CREATE", "MKDIR", "SYMLINK", "LINK", "RENAME", "REMOVE", "RMDIR")


class Suite:
    """What all cases share: the database, the run's directory, random numbers and stalls."""

    def __init__(self, run, database, seed, lease):
        self.run, self.database, self.seed, self.lease = run, database, seed, lease
        self.random = random.Random(seed)
        # Seconds, by kind of failover.
        self.stalls = {}
        script = run / "on-lease"
        script.write_text(ON_LEASE)
        script.chmod(0o755)

    def server(self, name, session):
        return Server(self.run, name, self.database, f"{session}?schema={SCHEMA}", self.lease)

    def new_session(self, session):
        """Two servers of a session that is not there yet."""
        self.database.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;")
        both = [self.server(name, session) for name in ("a", "b")]
        for server in both:
            server.forget_replica()
        return both

    def stalled(self, kind, seconds):
        self.stalls.setdefault(kind, []).append(seconds)

    def tell_stalls(self):
        for kind, all_seconds in sorted(self.stalls.items()):
            ordered = sorted(all_seconds)
            at = lambda part: ordered[min(len(ordered) - 1, int(part * len(ordered)))]  # noqa: E731
            print(
                f"stall {kind}: p50 {at(0.5):.2f} s, p99 {at(0.99):.2f} s, "
                f"longest {ordered[-1]:.2f} s, {len(ordered)} times"
            )


class Pair:
    """The holder of a session, its standby, and the load."""

    def __init__(self, suite, session):
        self.suite, self.session = suite, session
        (suite.run / "place").unlink(missing_ok=True)
        self.holder, self.standby = suite.new_session(session)
        self.load = None
        try:
            self.holder.start()
            self.holder.wait_listening()
            self.standby.start(standby=True)
            self.load = Load(Place(suite.run / "place"), suite.seed)
            self.load.progress()
        except BaseException:
            self.kill()
            raise

    def kill(self):
        """Leaves nothing running."""
        if self.load:
            self.load.is_over = True
        self.holder.kill()
        self.standby.kill()

    def work_a_while(self):
        self.load.progress()
        time.sleep(self.suite.random.random() * 0.5)
        self.load.check()

    def taken_over(self, kind, since):
        """Waits until the standby serves, and notes the stall; they change parts."""
        self.standby.wait_listening()
        self.holder, self.standby = self.standby, self.holder
        self.load.progress()
        self.suite.stalled(kind, self.load.stall(since))

    def renew_standby(self):
        self.standby.start(standby=True)

    def settle(self):
        """After the database was away, either may be the holder; one that lost ends with 75."""
        self.load.progress()
        time.sleep(self.suite.lease)
        for server in (self.holder, self.standby):
            if server.process.poll() is not None:
                server.wait_end(LOST)
        if self.standby.process and self.standby.is_listening():
            self.holder, self.standby = self.standby, self.holder
        if not self.standby.process:
            self.renew_standby()
        self.load.progress()

    def verify(self):
        self.load.hold()
        self.load.verify()
        self.load.go_on()

    def finish(self):
        """Ends all, and compares what the database, the replica and a new replica have."""
        self.load.hold()
        self.load.verify()
        made = self.load.made()
        self.load.end()
        self.load.check()
        self.standby.stop()
        self.holder.stop()
        _, _, holder = self.suite.database.row(SCHEMA, self.session)
        assert not holder, f"the lease is left with {holder}"
        rows = self.compare(self.holder)
        self.made_once(made)
        fresh = self.suite.server("fresh", self.session)
        fresh.forget_replica()
        try:
            fresh.start()
            fresh.wait_listening()
            fresh.stop()
        finally:
            fresh.kill()
        self.compare(fresh)
        return f"{rows} rows equal, {len(made)} changes made once, {self.load.told()}"

    def compare(self, server):
        rows = compare(self.suite.database, SCHEMA, self.session, server.replica())
        status, said = ended([os.environ["ACETATE"], "check", server.replica()])
        assert status == 0, f"check of {server.replica()}: {said}"
        return rows

    def made_once(self, made):
        """By the audit log: all that was answered was made, and nothing twice."""
        database = self.suite.database
        session = f"(SELECT id FROM {SCHEMA}.session WHERE name = '{self.session}')"
        kinds = ", ".join(f"'{kind}'" for kind in ONCE)
        found = database.sql(
            "SELECT procedure, CASE procedure WHEN 'LINK' THEN '' ELSE "
            "convert_from(path, 'UTF8') END, convert_from(path2, 'UTF8'), count(*) "
            f"FROM {SCHEMA}.acetate_op WHERE session = {session} AND procedure IN ({kinds}) "
            "GROUP BY 1, 2, 3"
        )
        logged = {}
        for line in found.split("\n"):
            *change, count = line.split("|")
            logged[tuple(change)] = int(count)
        twice = {change: count for change, count in logged.items() if count > 1}
        assert not twice, f"made twice: {twice}"
        missing = [change for change in made if tuple(it or "" for it in change) not in logged]
        assert not missing, f"answered, and not in the audit log: {missing[:3]}"


class Probe:
    """Calls to a server that may have lost its session, over connections from before."""

    def __init__(self, server, load):
        lane = load.lanes[0]
        self.file = load.workers[-2].file
        self.folder, self.name = lane.folder, b"probe"
        self.calls = [
            (GETATTR, opaque(self.file)),
            (GETATTR, opaque(load.root)),
            (LOOKUP, opaque(load.root) + opaque(b"counter")),
            (LOOKUP, opaque(load.root) + opaque(b"nothing")),
            (READ, opaque(self.file) + struct.pack(">QI", 0, 8)),
            (WRITE, opaque(self.file) + struct.pack(">QII", 0, 8, 2) + opaque(b"\xff" * 8)),
            (CREATE, opaque(load.root) + opaque(b"probe") + struct.pack(">I", 1) + SOME_MODE),
        ]
        self.sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in self.calls]

    def send(self):
        for number, (found, (procedure, args)) in enumerate(zip(self.sockets, self.calls)):
            found.sendall(record(number, NFS, procedure, args))

    def check(self, seconds=3):
        """Each call gets JUKEBOX, or no answer."""
        end = time.monotonic() + seconds
        answers = []
        for number, (found, (procedure, _)) in enumerate(zip(self.sockets, self.calls)):
            try:
                reply = read_record(found, lambda: time.monotonic() > end)
            except OSError:
                reply = None
            found.close()
            if reply is not None:
                status = struct.unpack_from(">I", results(reply, number))[0]
                answers.append((procedure, status))
        wrong = [answer for answer in answers if answer[1] != JUKEBOX]
        assert not wrong, f"a server without the session answered (procedure, status): {wrong}"


