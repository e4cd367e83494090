"""Faults of the database and of the connection to it."""

import random
import signal
import sqlite3
import struct
import threading
import time

from failovers import same_holder
from nfs import NFS, NOSPC, OK, WRITE, Client, opaque, record
from pair import SCHEMA
from servers import LOST

CONFLICT = f"""
CREATE FUNCTION {SCHEMA}.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF random() < 0.1 THEN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER conflict BEFORE UPDATE ON {SCHEMA}.session FOR EACH ROW
  EXECUTE FUNCTION {SCHEMA}.conflict();
"""
NO_CONFLICT = f"DROP TRIGGER conflict ON {SCHEMA}.session; DROP FUNCTION {SCHEMA}.conflict();"

FULL = f"""
CREATE FUNCTION {SCHEMA}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {SCHEMA}.fs_data FOR EACH STATEMENT
  EXECUTE FUNCTION {SCHEMA}.full_disk();
"""
NOT_FULL = f"DROP TRIGGER full_disk ON {SCHEMA}.fs_data; DROP FUNCTION {SCHEMA}.full_disk();"


def crashes(pair):
    """The database is killed in the middle of commits, and started again."""
    for _ in range(5):
        pair.work_a_while()
        since = time.monotonic()
        pair.suite.database.kill()
        time.sleep(pair.suite.random.random())
        pair.suite.database.start()
        pair.settle()
        pair.suite.stalled("database killed", pair.load.stall(since))
        pair.verify()


def stop_without_database(pair):
    """SIGTERM of a holder that does not reach the database: it ends all the same, and the standby
    takes over when the lease is over."""
    pair.work_a_while()
    pair.holder.proxy.is_partitioned = True
    since = time.monotonic()
    # A change waits for the database.
    time.sleep(0.3)
    pair.holder.signal(signal.SIGTERM)
    pair.taken_over("SIGTERM without database", since)
    pair.standby.wait_end(LOST, 0)
    pair.suite.stalled("process without database", time.monotonic() - since)
    pair.standby.proxy.is_partitioned = False
    pair.renew_standby()


def vanish(pair):
    """Another database server takes the address over, and connections to the one before stay open
    without an answer: the holder finds out, and keeps the session."""
    for _ in range(3):
        pair.work_a_while()
        since = time.monotonic()
        pair.holder.proxy.vanish()
        pair.load.progress()
        pair.suite.stalled("database vanished", pair.load.stall(since))
        same_holder(pair)


def far(pair):
    """The database is far away, and the connections are cut: new ones are made in time, with
    changes and without."""
    pair.work_a_while()
    pair.holder.proxy.delay = 0.1
    pair.load.progress(1)
    for is_idle in (False, True):
        if is_idle:
            pair.load.hold()
        since = time.monotonic()
        pair.holder.proxy.cut()
        time.sleep(2 * pair.suite.lease)
        same_holder(pair)
        if is_idle:
            pair.load.go_on()
        pair.load.progress(1)
        pair.suite.stalled("database far", pair.load.stall(since))
    pair.holder.proxy.delay = 0
    pair.load.progress()


def cuts(pair):
    """Connections are cut every 20 ms, also in the middle of a message, and a tenth of the
    statements meets another transaction."""
    pair.work_a_while()
    pair.suite.database.sql(CONFLICT)
    ended = threading.Event()
    proxies = [pair.holder.proxy, pair.standby.proxy]

    def cut():
        chosen = random.Random(pair.suite.seed)
        while not ended.wait(0.02):
            for proxy in proxies:
                if chosen.random() < 0.5:
                    proxy.cut()
                else:
                    proxy.cut_after[chosen.randrange(2)] = chosen.randrange(1, 3000)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        time.sleep(10)
    finally:
        ended.set()
        thread.join()
        for proxy in proxies:
            proxy.cut_after = [None, None]
    pair.suite.database.sql(NO_CONFLICT)
    pair.load.check()
    pair.settle()
    cut_count = sum(proxy.cuts for proxy in proxies)
    assert cut_count > 100, f"only {cut_count} cuts"


def full(pair):
    """The database's disk is full: NOSPC, and nothing of the change is there; then it has room."""
    pair.work_a_while()
    pair.load.hold()
    client = Client(pair.load.place)
    file = client.create_guarded(pair.load.root, b"grows")
    client.write(file, 0, b"before")
    pair.suite.database.sql(FULL)
    assert client.write(file, 0, b"x" * 100_000, may=(NOSPC,)) == NOSPC
    assert client.read(file) == b"before"
    pair.suite.database.sql(NOT_FULL)
    assert client.write(file, 0, b"after.", may=(NOSPC,)) == OK
    assert client.read(file) == b"after."
    client.close()
    pair.load.go_on()
    pair.load.progress()


def restored(pair):
    """The database is restored to an earlier state: the server stops and says so, and keeps its
    replica; so does a server that starts with that replica."""
    suite, database = pair.suite, pair.suite.database
    pair.standby.stop()
    for way in ("a change", "a renewal"):
        pair.load.hold()
        earlier = database.dump(SCHEMA)
        client = Client(pair.load.place)
        file = client.create_guarded(pair.load.root, b"later")
        _, newest, _ = database.row(SCHEMA, pair.session)
        restore = f"BEGIN; DROP SCHEMA {SCHEMA} CASCADE; {earlier}\nCOMMIT;"
        database.sql(restore)
        assert database.row(SCHEMA, pair.session)[1] < newest
        if way == "a change":
            try:
                client._connect()
                client.socket.settimeout(10)
                where = struct.pack(">QII", 0, 4, 2)
                client.socket.sendall(record(1, NFS, WRITE, opaque(file) + where + opaque(b"lost")))
                assert client.socket.recv(1000) == b"", "the change was answered"
            except ConnectionError:
                pass
        client.close()
        pair.holder.wait_end(LOST)
        assert "lacks changes" in pair.holder.said(), pair.holder.said()
        replica = pair.holder.replica()
        kept = "SELECT count(*) FROM fs_dentry WHERE name = 'later'"
        check_one(replica, kept)
        # A start with that replica.
        pair.holder.start()
        pair.holder.wait_end(2)
        said = pair.holder.said()
        assert "newer" in said and "hint:" in said and str(replica) in said, said
        check_one(replica, kept)
        assert not database.row(SCHEMA, pair.session)[2], "the lease is left"
        replica.rename(suite.run / f"kept-{way.split()[1]}.db")
        pair.holder.start()
        pair.holder.wait_listening()
        pair.load.verify()
        pair.load.go_on()
        pair.load.progress()
    pair.renew_standby()


def check_one(replica, text):
    connection = sqlite3.connect(replica)
    ((count,),) = connection.execute(text)
    connection.close()
    assert count == 1, f"{replica} has lost its changes"
