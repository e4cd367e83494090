"""Loads a server for some seconds with calls of all kinds, also such that fail, without a mount.

Usage: load.py ADDRESS SECONDS [EXPORT]

EXPORT is /work, with a guard, or / without one.
"""

import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "interop"))
from client import MNT, MOUNT, NFS, Client, opaque  # noqa: E402

GETATTR, SETATTR, LOOKUP, READ, WRITE, CREATE, REMOVE, READDIRPLUS, COMMIT = 1, 2, 3, 6, 7, 8, 12, 17, 21
UNSTABLE, FILE_SYNC, UNCHECKED = 0, 2, 0
MODE = struct.pack(">IIIIIII", 1, 0o644, 0, 0, 0, 0, 0)


class Load(Client):
    """A client of an export that makes calls which may fail."""

    def __init__(self, address, export):
        self.retransmits = False
        self.export = export
        super().__init__(address)

    def call(self, program, procedure, args):
        if (program, procedure) == (MOUNT, MNT):
            args = opaque(self.export.encode())
        return super().call(program, procedure, args)

    def attempt(self, procedure, args):
        """A call that may fail; its results, or None."""
        try:
            return self.call(NFS, procedure, args)
        except AssertionError:
            return None

    def round(self, n):
        folder = self.find("dir")
        self.call(NFS, GETATTR, opaque(self.root))
        self.call(NFS, READDIRPLUS, opaque(folder) + struct.pack(">QQII", 0, 0, 4096, 32768))
        assert self.attempt(LOOKUP, opaque(self.root) + opaque(b"none")) is None
        of_base = self.find(f"dir/file{n % 20 + 1}")
        self.call(NFS, READ, opaque(of_base) + struct.pack(">QI", 0, 4096))
        # The first change copies it up.
        self.call(NFS, SETATTR, opaque(of_base) + MODE + struct.pack(">I", 0))
        name = f"made{n}"
        made = opaque(self.root) + opaque(name.encode())
        self.call(NFS, CREATE, made + struct.pack(">I", UNCHECKED) + MODE)
        file = self.find(name)
        data = b"x" * 16384
        for at in range(4):
            where = struct.pack(">QII", at * len(data), len(data), UNSTABLE)
            self.call(NFS, WRITE, opaque(file) + where + opaque(data))
        self.call(NFS, COMMIT, opaque(file) + struct.pack(">QI", 0, 0))
        self.call(NFS, READ, opaque(file) + struct.pack(">QI", 0, 65536))
        self.call(NFS, REMOVE, made)
        if n % 10 == 0 and self.export != "/":
            self.refused(n)

    def refused(self, n):
        """Content that a guard refuses, and a call of a version that does not exist."""
        place = opaque(self.root) + opaque(b"guarded.json")
        self.call(NFS, CREATE, place + struct.pack(">I", UNCHECKED) + MODE)
        file = self.find("guarded.json")
        assert self.attempt(WRITE, opaque(file) + struct.pack(">QII", 0, 1, FILE_SYNC) + opaque(b"{")) is None
        try:
            super().call((NFS[0], 2), 0, b"")
        except AssertionError:
            pass


def main(address, seconds, export="/work"):
    begun, n, lasting = time.monotonic(), 0, Load(address, export)
    while time.monotonic() - begun < seconds:
        lasting.round(n)
        # Connections come and go.
        Load(address, export).socket.close()
        n += 1
        time.sleep(0.005)
    print(f"{n} rounds")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
