"""An NFS client that does as the kernel's does: a call is sent again, with the same number, over
new connections until it is answered; after JUKEBOX it is sent as a new one.

The server's address moves: a file names it, as a virtual address would lead to it.
"""

import os
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "interop"))
from client import opaque  # noqa: E402

MOUNT, NFS = (100005, 3), (100003, 3)
MNT = 1
GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK = range(1, 11)
REMOVE, RMDIR, RENAME, LINK, READDIR, READDIRPLUS, FSSTAT = range(12, 19)

OK, EXIST, NOSPC, STALE, JUKEBOX = 0, 17, 28, 70, 10008
GUARDED, EXCLUSIVE = 1, 2
FILE_SYNC = 2

# No answer for so long fails a run.
PATIENCE = 60
JUKEBOX_PAUSE = 0.05
NO_ATTRIBUTES = struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0)
SOME_MODE = struct.pack(">IIIIIII", 1, 0o644, 0, 0, 0, 0, 0)


class Place:
    """Where the session is served now, by a file that the server's --on-lease writes."""

    def __init__(self, file):
        self.file = file
        self.address = None
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            try:
                host, port = self.file.read_text().split(":")
                self.address = (host, int(port))
            except (OSError, ValueError):
                pass
            time.sleep(0.005)


class Refused(Exception):
    """A call that was answered with an error."""

    def __init__(self, procedure, status):
        super().__init__(f"procedure {procedure}: status {status}")
        self.status = status


def record(xid, program, procedure, args):
    unix = struct.pack(">I", 0) + opaque(b"postgres") + struct.pack(">III", 0, 0, 0)
    head = struct.pack(">IIIIII", xid, 0, 2, *program, procedure)
    call = head + struct.pack(">I", 1) + opaque(unix) + struct.pack(">II", 0, 0) + args
    return struct.pack(">I", 1 << 31 | len(call)) + call


def results(reply, xid):
    """The results of a reply: their first word is the status."""
    # xid, REPLY, accepted, an empty verifier, success.
    assert struct.unpack_from(">IIIIII", reply) == (xid, 1, 0, 0, 0, 0), reply
    return reply[24:]


def read_record(sock, until):
    """A record, or None if the connection ends, or `until` says so."""
    data = b""
    while len(data) < 4 or len(data) < 4 + (struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF):
        while not select.select([sock], [], [], 0.02)[0]:
            if until():
                return None
        piece = sock.recv(1 << 20)
        if not piece:
            return None
        data += piece
    return data[4:]


class Client:
    """One connection at a time; not for several threads."""

    def __init__(self, place):
        self.place = place
        self.connected = None
        self.socket = None
        self.xid = int.from_bytes(os.urandom(4), "big")
        # (sent, answered) of each call, on the monotonic clock.
        self.times = []
        self.jukeboxes = self.resent = 0

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def call(self, procedure, args, program=NFS, may=()):
        """The results of a call, and its status, which must be OK or one of `may`."""
        sent = time.monotonic()
        while True:
            self.xid = (self.xid + 1) & 0xFFFFFFFF
            call = record(self.xid, program, procedure, args)
            found = results(self._exchange(call, sent), self.xid)
            status = struct.unpack_from(">I", found)[0]
            if status != JUKEBOX:
                break
            self.jukeboxes += 1
            assert time.monotonic() < sent + PATIENCE, f"{procedure}: JUKEBOX for too long"
            time.sleep(JUKEBOX_PAUSE)
        self.times.append((sent, time.monotonic()))
        if status != OK and status not in may:
            raise Refused(procedure, status)
        return found, status

    def _exchange(self, call, begun):
        tries = 0
        while time.monotonic() < begun + PATIENCE:
            try:
                self._connect()
                self.resent += tries > 0
                tries += 1
                self.socket.sendall(call)
                reply = read_record(self.socket, lambda: self._has_moved(begun))
            except OSError:
                reply = None
            if reply is not None:
                return reply
            self.close()
            time.sleep(0.005)
        raise TimeoutError(f"no answer for {PATIENCE} seconds")

    def _has_moved(self, begun):
        return self.place.address != self.connected or time.monotonic() > begun + PATIENCE

    def _connect(self):
        if self.socket and self.connected == self.place.address:
            return
        self.close()
        self.connected = self.place.address
        if not self.connected:
            raise OSError("nothing is served")
        self.socket = socket.create_connection(self.connected, timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Calls.

    def mount(self, path=b"/"):
        return handle_at(self.call(MNT, opaque(path), MOUNT)[0], 4)

    def lookup(self, folder, name):
        return handle_at(self.call(LOOKUP, opaque(folder) + opaque(name))[0], 4)

    def getattr(self, file, may=()):
        return self.call(GETATTR, opaque(file), may=may)[1]

    def create_exclusive(self, folder, name, verifier, may=()):
        args = opaque(folder) + opaque(name) + struct.pack(">I", EXCLUSIVE) + verifier
        return made(*self.call(CREATE, args, may=may))

    def create_guarded(self, folder, name):
        args = opaque(folder) + opaque(name) + struct.pack(">I", GUARDED) + SOME_MODE
        return made(*self.call(CREATE, args))

    def mkdir(self, folder, name, may=()):
        return made(*self.call(MKDIR, opaque(folder) + opaque(name) + SOME_MODE, may=may))

    def symlink(self, folder, name, target):
        args = opaque(folder) + opaque(name) + SOME_MODE + opaque(target)
        return made(*self.call(SYMLINK, args))

    def link(self, file, folder, name):
        self.call(LINK, opaque(file) + opaque(folder) + opaque(name))

    def rename(self, folder, old, new):
        self.call(RENAME, opaque(folder) + opaque(old) + opaque(folder) + opaque(new))

    def remove(self, folder, name, procedure=REMOVE):
        self.call(procedure, opaque(folder) + opaque(name))

    def write(self, file, offset, data, may=()):
        where = struct.pack(">QII", offset, len(data), FILE_SYNC)
        return self.call(WRITE, opaque(file) + where + opaque(data), may=may)[1]

    def truncate(self, file, size):
        args = struct.pack(">IIIIQIII", 0, 0, 0, 1, size, 0, 0, 0)
        self.call(SETATTR, opaque(file) + args)

    def read(self, file, offset=0, count=1 << 20):
        found, _ = self.call(READ, opaque(file) + struct.pack(">QI", offset, count))
        at = 8 + 84 * struct.unpack_from(">I", found, 4)[0]
        length = struct.unpack_from(">I", found, at + 8)[0]
        return found[at + 12 : at + 12 + length]

    def names(self, folder):
        cookie, verifier, all_names = 0, 0, set()
        while True:
            args = opaque(folder) + struct.pack(">QQI", cookie, verifier, 32768)
            found, _ = self.call(READDIR, args)
            at = 8 + 84 * struct.unpack_from(">I", found, 4)[0]
            verifier = struct.unpack_from(">Q", found, at)[0]
            at += 8
            while struct.unpack_from(">I", found, at)[0]:
                length = struct.unpack_from(">I", found, at + 12)[0]
                all_names.add(found[at + 16 : at + 16 + length])
                at += 16 + length + -length % 4
                cookie = struct.unpack_from(">Q", found, at)[0]
                at += 8
            if struct.unpack_from(">I", found, at + 4)[0]:
                return all_names - {b".", b".."}


def handle_at(found, at):
    length = struct.unpack_from(">I", found, at)[0]
    return found[at + 4 : at + 4 + length]


def made(found, status):
    """The handle of what a call made, or None after an error."""
    return handle_at(found, 8) if status == OK else None
