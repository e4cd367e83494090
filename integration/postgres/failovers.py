"""Failovers: a holder that is killed, stopped, frozen, or cut off from the database."""

import signal
import socket
import time

from pair import Probe
from servers import LOST


def kill(pair):
    """kill -9 of the holder: its connections are reset, and none is left where its address was."""
    idle = socket.create_connection(("127.0.0.1", pair.holder.port))
    pair.work_a_while()
    since = time.monotonic()
    pair.holder.kill()
    try:
        assert not idle.recv(1), "an answer to nothing"
        raise AssertionError("the connection was closed, and not reset")
    except ConnectionResetError:
        idle.close()
    pair.taken_over("kill -9", since)
    pair.renew_standby()


def follow(pair):
    """A standby has the rows of now before it takes over, and its replica is not made again: not
    after a start without one, and not with one of a while ago."""
    for _ in range(2):
        pair.standby.wait_for("the replica is up to date, and follows")
        made = pair.standby.replica().stat().st_ino
        pair.work_a_while()
        pair.holder.kill()
        pair.taken_over("kill -9 (follow)", time.monotonic())
        assert pair.holder.replica().stat().st_ino == made, "the replica was made again"
        pair.work_a_while()
        pair.renew_standby()
    # It follows a server that it was before.
    pair.standby.wait_for("the replica is up to date, and follows")


def stop(pair):
    """SIGTERM: the standby follows at once."""
    pair.work_a_while()
    since = time.monotonic()
    pair.holder.signal(signal.SIGTERM)
    pair.taken_over("SIGTERM", since)
    pair.standby.wait_end(0)
    pair.renew_standby()


def freeze(pair):
    """SIGSTOP of the holder for twice the lease, and CONT."""
    pair.work_a_while()
    probe = Probe(pair.holder, pair.load)
    since = time.monotonic()
    pair.holder.signal(signal.SIGSTOP)
    try:
        pair.taken_over("SIGSTOP", since)
        probe.send()
        time.sleep(max(0, since + 2 * pair.suite.lease - time.monotonic()))
    finally:
        pair.standby.signal(signal.SIGCONT)
        pair.holder.signal(signal.SIGCONT)
    probe.check()
    pair.standby.wait_end(LOST)
    pair.renew_standby()


def partition_short(pair):
    """The holder does not reach the database for less than the lease: it keeps the session."""
    pair.work_a_while()
    since = time.monotonic()
    pair.holder.proxy.is_partitioned = True
    time.sleep(pair.suite.lease * (0.1 + 0.3 * pair.suite.random.random()))
    pair.holder.proxy.is_partitioned = False
    pair.load.progress()
    pair.suite.stalled("partition < lease", pair.load.stall(since))
    same_holder(pair)


def partition_long(pair):
    """The holder does not reach the database for more than the lease: it answers nothing more, and
    ends as soon as it learns why."""
    pair.work_a_while()
    probe = Probe(pair.holder, pair.load)
    since = time.monotonic()
    pair.holder.proxy.is_partitioned = True
    pair.taken_over("partition > lease", since)
    probe.send()
    probe.check(1)
    pair.standby.proxy.is_partitioned = False
    pair.standby.wait_end(LOST)
    pair.renew_standby()


def same_holder(pair):
    """The holder keeps the session."""
    assert pair.holder.process.poll() is None, pair.holder.said()
    assert not pair.standby.is_listening(), "the standby took over from a holder that is alive"


ROUNDS = [kill, stop, freeze, partition_short, partition_long]
