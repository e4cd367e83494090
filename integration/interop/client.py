"""Serves a session and changes it over NFS, as a mount would, without a kernel's client.

Usage: client.py ACETATE SESSION [again | theirs]
"""

import signal
import socket
import struct
import subprocess
import sys

MOUNT, NFS = (100005, 3), (100003, 3)
MNT = 1
LOOKUP, WRITE, CREATE, RENAME = 3, 7, 8, 14
FILE_SYNC, UNCHECKED = 2, 0


def opaque(data):
    return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)


class Client:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.xid = 0
        reply = self.call(MOUNT, MNT, opaque(b"/"))
        self.root = self.handle(reply, 4)

    def call(self, program, procedure, args):
        """Calls as root, and returns the results; the first word of them is the status."""
        self.xid += 1
        unix = struct.pack(">I", 0) + opaque(b"interop") + struct.pack(">III", 0, 0, 0)
        head = struct.pack(">IIIIII", self.xid, 0, 2, *program, procedure)
        record = head + struct.pack(">I", 1) + opaque(unix) + struct.pack(">II", 0, 0) + args
        self.socket.sendall(struct.pack(">I", 1 << 31 | len(record)) + record)
        reply = self.read(struct.unpack(">I", self.read(4))[0] & 0x7FFFFFFF)
        # xid, REPLY, accepted, an empty verifier, success.
        assert struct.unpack_from(">IIIIII", reply) == (self.xid, 1, 0, 0, 0, 0), reply
        results = reply[24:]
        status = struct.unpack_from(">I", results)[0]
        assert status == 0, f"procedure {procedure} of {program}: status {status}"
        return results

    def read(self, length):
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            assert piece, "the server hung up"
            data += piece
        return data

    def handle(self, results, at):
        length = struct.unpack_from(">I", results, at)[0]
        return results[at + 4 : at + 4 + length]

    def find(self, path):
        found = self.root
        for name in filter(None, path.split("/")):
            found = self.handle(self.call(NFS, LOOKUP, opaque(found) + opaque(name.encode())), 4)
        return found

    def place(self, path):
        folder, _, name = path.rpartition("/")
        return opaque(self.find(folder)) + opaque(name.encode())

    def create(self, path):
        # Mode 0644, and nothing else.
        attributes = struct.pack(">IIIIIII", 1, 0o644, 0, 0, 0, 0, 0)
        self.call(NFS, CREATE, self.place(path) + struct.pack(">I", UNCHECKED) + attributes)

    def write(self, path, offset, data):
        where = struct.pack(">QII", offset, len(data), FILE_SYNC)
        self.call(NFS, WRITE, opaque(self.find(path)) + where + opaque(data))

    def rename(self, old, new):
        self.call(NFS, RENAME, self.place(old) + self.place(new))


def ours(client):
    """What the specification has no words for."""
    client.rename("/src", "/moved")
    client.write("/keep/one", 0, b"L")
    client.create("/sparse")
    client.write("/sparse", 0, b"begin")
    client.write("/sparse", 299_995, b"ended")


def again(client):
    client.create("/moved/again")
    client.write("/moved/again", 0, b"again")


def theirs(client):
    client.create("/data/again")
    client.write("/data/again", 0, b"again")


def main(program, session, what="ours"):
    # Anybody may call from such a port, and only for as long as this takes.
    command = [program, "serve", session, "--insecure", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if line.startswith("listening on "):
                {"ours": ours, "again": again, "theirs": theirs}[what](Client(line.split()[2]))
                break
        else:
            sys.exit("the server did not listen")
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0, "the server failed"
    finally:
        server.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
