"""A server that cannot start: each time it says why and what to do, and leaves no lease behind."""

import os
import shutil
import socket

from pair import SCHEMA
from proxy import Proxy
from servers import ended, free_port

SESSION = "bad-input"

# A role that needs a password, and one without rights.
ROLES = """
SET password_encryption = 'scram-sha-256';
CREATE ROLE locked LOGIN PASSWORD 'the word';
CREATE ROLE powerless LOGIN;
"""


class Starts:
    """Starts of servers that fail."""

    def __init__(self, suite):
        self.suite, self.database = suite, suite.database
        self.count = 0

    def url(self, session=SESSION, user=None, port=None, base="postgres", schema=SCHEMA):
        place = f"{user or self.database.owner}@127.0.0.1:{port or self.database.port}"
        return f"postgres://{place}/{base}/{session}?schema={schema}"

    def fails(self, url, *words, options=(), **environment):
        """The start fails with status 2, these words and a hint."""
        self.count += 1
        local = self.suite.run / "local-bad"
        shutil.rmtree(local, ignore_errors=True)
        command = [os.environ["ACETATE"], "serve", url, "--local", local, *options]
        command += [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
        status, said = ended(command, **environment)
        expected = [*words, "error:", "hint:"]
        missing = [word for word in expected if word not in said]
        assert status == 2 and not missing, f"{url}: {status}, without {missing}: {said}"

    def not_held(self):
        holder = self.database.row(SCHEMA, SESSION)[2]
        assert not holder, f"the lease is left with {holder}"


def run(suite):
    database, starts = suite.database, Starts(suite)
    first, second = suite.new_session(SESSION)
    base = suite.run / "base"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    (base / "file").write_text("content")
    try:
        first.start(options=("--base", base))
        first.wait_listening()
        while_held(starts, first, second)
        first.stop()
    finally:
        first.kill()
        second.kill()
    starts.not_held()
    address_in_use(starts)
    starts.not_held()
    without_database(starts)
    without_rights(starts)
    of_another_kind(starts, base)
    # All is as before.
    try:
        first.start(options=("--existing",))
        first.wait_listening()
        first.stop()
    finally:
        first.kill()
    return f"{starts.count} starts"


def while_held(starts, first, second):
    """Another server has the session: who, and where."""
    who, where = f"process {first.process.pid}", f"127.0.0.1:{first.port}"
    starts.fails(starts.url(), "served by", who, where, "--standby")
    # A standby that waits holds nothing, and ends with 0.
    second.start(standby=True)
    second.stop()


def address_in_use(starts):
    """Found after the lease was taken, which is given back."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        starts.fails(starts.url(), address, "in use", options=("--listen", address))
    starts.fails(starts.url(), "--on-lease", options=("--on-lease", "/bin/false"))
    starts.fails(starts.url(), "--on-lease", options=("--on-lease", "/nothing"))


def without_database(starts):
    starts.fails(starts.url(port=free_port()), "refused")
    silent = Proxy(starts.database.port)
    silent.is_partitioned = True
    starts.fails(starts.url(port=silent.port), "does not answer")
    starts.fails(starts.url(base="nothing"), '"nothing" does not exist')
    starts.fails(starts.url(user="nobody_known"), "nobody_known")
    starts.fails(starts.url(session="none"), "no session none", options=("--existing",))
    starts.fails("postgres://me:word@127.0.0.1/postgres/a", "password")
    starts.fails("postgres://127.0.0.1/postgres", "names no session")


def without_rights(starts):
    database = starts.database
    hba = database.data / "pg_hba.conf"
    before = hba.read_text()
    database.sql(ROLES)
    hba.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + before)
    database.sql("SELECT pg_reload_conf();")
    starts.fails(starts.url(user="locked"), "password", PGPASSWORD="a wrong one")
    starts.fails(starts.url(user="locked"), "password", PGPASSFILE="/nothing")
    # Rights: of nothing, then of the schema alone, then of all but one table.
    owner = starts.url(user="powerless")
    starts.fails(owner, "permission denied", "powerless")
    other = starts.url(user="powerless", schema="of_its_own")
    starts.fails(other, "permission denied", "powerless")
    database.sql(f"GRANT USAGE ON SCHEMA {SCHEMA} TO powerless;")
    starts.fails(owner, "permission denied", "powerless")
    database.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO powerless;")
    starts.fails(owner, "permission denied", "powerless")
    starts.not_held()
    database.sql(f"GRANT UPDATE ON {SCHEMA}.session TO powerless;")
    starts.fails(owner, "permission denied", "powerless")
    starts.not_held()
    hba.write_text(before)
    database.sql(
        f"SELECT pg_reload_conf(); REVOKE ALL ON ALL TABLES IN SCHEMA {SCHEMA} FROM powerless;"
        f"REVOKE ALL ON SCHEMA {SCHEMA} FROM powerless; DROP ROLE powerless; DROP ROLE locked;"
    )


def of_another_kind(starts, base):
    """A session of a newer acetate, and a base that is a copy."""
    update = f"UPDATE {SCHEMA}.session SET format = format + {{}} WHERE name = '{SESSION}';"
    starts.database.sql(update.format(1))
    starts.fails(starts.url(), "newer acetate", "format 2")
    starts.fails(starts.url(), "newer acetate", options=("--standby",))
    starts.database.sql(update.format(-1))
    starts.not_held()
    copy = base.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(base, copy)
    starts.fails(starts.url(), "is not the base", str(copy), options=("--base", copy))
    starts.not_held()
    # The recorded base is a copy now: found only after the lease was taken.
    kept = base.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    base.rename(kept)
    copy.rename(base)
    starts.fails(starts.url(), "is not the base", str(base))
    starts.not_held()
    base.rename(copy)
    starts.fails(starts.url(), str(base))
    starts.not_held()
    kept.rename(base)
