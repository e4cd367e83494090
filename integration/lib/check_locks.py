"""Checks file locks between two mounts of one export: check_locks.py DIR DIR.

Two processes that lock through one mount are kept apart by the client's kernel; through two
mounts that share nothing, by the server.
"""

import errno
import fcntl
import multiprocessing
import os
import signal
import sqlite3
import struct
import sys
import time

A, B = sys.argv[1:]
# What a lock that has become free may take: the client asks again every 5 seconds.
AGAIN = 8
FLOCK64 = "hhqqi"


def step(what):
    print(f"{time.monotonic():.1f} {what}", flush=True)


def opened(folder, name="file"):
    return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT)


def refused(lock, *args):
    try:
        lock(*args)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    return False


def child(run, *args):
    """Runs `run` in another process, which says when it has begun."""
    process = multiprocessing.Process(target=run, args=args)
    process.start()
    return process


def joined(process):
    process.join(60)
    assert process.exitcode == 0, f"{process.name}: {process.exitcode}"


def hold(folder, kind, got, release, lock=fcntl.flock):
    fd = opened(folder)
    lock(fd, kind)
    got.set()
    release.wait()
    # Closing unlocks.
    os.close(fd)


def held(folder, kind, lock=fcntl.flock):
    """Another process that has a lock; setting the second gives it up."""
    got, release = multiprocessing.Event(), multiprocessing.Event()
    process = child(hold, folder, kind, got, release, lock)
    assert got.wait(60), "the lock is not granted"
    return process, release


def exclusive_and_shared(lock):
    for mine, theirs in (A, A), (A, B):
        fd = opened(mine)
        process, release = held(theirs, fcntl.LOCK_EX, lock)
        assert refused(lock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert refused(lock, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        release.set()
        joined(process)
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        process, release = held(theirs, fcntl.LOCK_SH, lock)
        assert refused(lock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        release.set()
        joined(process)
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)


def who_is_there(fd, start, length):
    """F_GETLK for an exclusive lock: the range in the way, or None."""
    asked = struct.pack(FLOCK64, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, start, length, _ = struct.unpack(FLOCK64, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (kind, start, length)


def hold_ranges(folder, got, release):
    fd = opened(folder)
    fcntl.lockf(fd, fcntl.LOCK_EX, 30, 0)
    fcntl.lockf(fd, fcntl.LOCK_UN, 10, 10)
    fcntl.lockf(fd, fcntl.LOCK_SH, 0, 100)
    got.set()
    release.wait()
    os.close(fd)


def ranges():
    got, release = multiprocessing.Event(), multiprocessing.Event()
    process = child(hold_ranges, B, got, release)
    assert got.wait(60)
    fd = opened(A)
    assert who_is_there(fd, 0, 10) == (fcntl.F_WRLCK, 0, 10)
    assert who_is_there(fd, 10, 10) is None
    assert who_is_there(fd, 15, 10) == (fcntl.F_WRLCK, 20, 10)
    assert who_is_there(fd, 1 << 40, 1) == (fcntl.F_RDLCK, 100, 0)
    none = fcntl.LOCK_NB
    assert refused(fcntl.lockf, fd, fcntl.LOCK_EX | none, 11, 10)
    fcntl.lockf(fd, fcntl.LOCK_EX | none, 10, 10)
    fcntl.lockf(fd, fcntl.LOCK_SH | none, 0, 200)
    assert refused(fcntl.lockf, fd, fcntl.LOCK_EX | none, 0, 200)
    release.set()
    joined(process)
    fcntl.lockf(fd, fcntl.LOCK_EX | none)
    os.close(fd)


def waiting(seconds, limit):
    """A lock that is given up after `seconds` is had by whoever waits at most `limit` later."""
    process, release = held(B, fcntl.LOCK_EX)
    begun = time.monotonic()
    fd = opened(A)
    timer = child(lambda: (time.sleep(seconds), release.set()))
    fcntl.flock(fd, fcntl.LOCK_EX)
    took = time.monotonic() - begun
    step(f"waited {took:.1f} s for a lock of {seconds} s")
    assert seconds <= took < seconds + limit, took
    os.close(fd)
    joined(process)
    joined(timer)


def killed():
    """The lock of a process that is killed is free; one that was waiting gets nothing."""
    fd = opened(A)
    process, _ = held(B, fcntl.LOCK_EX)
    assert refused(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    process.kill()
    process.join()
    fcntl.flock(fd, fcntl.LOCK_EX)
    for after in 0.5, 3:
        got, never = multiprocessing.Event(), multiprocessing.Event()
        waiter = child(hold, B, fcntl.LOCK_EX, got, never)
        time.sleep(after)
        assert not got.is_set()
        waiter.kill()
        waiter.join(10)
        assert waiter.exitcode == -signal.SIGKILL, "a process that waits cannot be killed"
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.5)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


def interrupted():
    """A signal ends the waiting, if not at once."""
    process, release = held(B, fcntl.LOCK_EX)
    fd = opened(A)

    def ring(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    begun = time.monotonic()
    signal.alarm(1)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        raise AssertionError("locked what another has locked")
    except TimeoutError:
        step(f"interrupted after {time.monotonic() - begun:.1f} s")
    assert time.monotonic() - begun < 5
    release.set()
    joined(process)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)


def add(folder, times):
    for _ in range(times):
        fd = opened(folder, "sum")
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0) or b"0") + 1
        os.pwrite(fd, b"%d" % number, 0)
        os.close(fd)


def one_after_the_other(folders, times):
    if os.path.exists(f"{A}/sum"):
        os.unlink(f"{A}/sum")
    begun = time.monotonic()
    workers = [child(add, folder, times) for folder in folders]
    for worker in workers:
        joined(worker)
    fd = opened(A, "sum")
    fcntl.flock(fd, fcntl.LOCK_SH)
    total = int(os.read(fd, 20))
    os.close(fd)
    assert total == len(folders) * times, total
    step(f"{total} locks in turns in {time.monotonic() - begun:.1f} s")


def insert(folder, times):
    db = sqlite3.connect(f"{folder}/db", timeout=60, isolation_level=None)
    for _ in range(times):
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO t VALUES (?)", [("x" * 300,)] * 5)
        db.execute("COMMIT")
    db.close()


def databases():
    db = sqlite3.connect(f"{A}/db")
    db.execute("DROP TABLE IF EXISTS t")
    db.execute("CREATE TABLE t (v TEXT)")
    db.close()
    workers = [child(insert, folder, 15) for folder in (A, A, B)]
    for worker in workers:
        joined(worker)
    db = sqlite3.connect(f"{B}/db")
    assert db.execute("SELECT count(*) FROM t").fetchone() == (3 * 15 * 5,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


multiprocessing.set_start_method("fork")
for check, *args in (
    (exclusive_and_shared, fcntl.flock),
    (exclusive_and_shared, fcntl.lockf),
    (ranges,),
    (waiting, 1, 1),
    (waiting, 4, AGAIN),
    (killed,),
    (interrupted,),
    (one_after_the_other, (A, A), 50),
    (one_after_the_other, (A, B), 20),
    (databases,),
):
    step(f"{check.__name__}{args}")
    check(*args)
