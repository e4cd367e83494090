"""Runs the installed service as systemd would: service.py ROOT RUN.

The command is that of the unit in ROOT, as its user, with the sockets of its socket unit and a
notification socket. A client mounts and writes; the service reloads, restarts beside the client,
and stops. Its system calls are compared with the unit's filter.
"""

import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT, RUN = sys.argv[1:]
UNITS = f"{ROOT}/usr/lib/systemd/system"
DEADLINE = 60
NFS, MOUNT = 100003, 100005

GUARDED = """
[[export]]
path = "/guarded"
options = ["no_root_squash"]

  [[export.mount]]
  at = "/"
  session = "/var/lib/acetate/guarded.db"

  [[export.guard]]
  path = "/object.json"
  json_schema = "/etc/acetate/schema.json"

  [[export.guard]]
  path = "/checked"
  program = ["sh", "-c", "! grep -q bad"]
"""
SECRET = """
[[export]]
name = "hush"
token = true

  [[export.mount]]
  at = "/"
  session = "/var/lib/acetate/hush.db"
"""


def unit(name):
    """The assignments of a unit, each with all its values."""
    found = {}
    with open(f"{UNITS}/{name}") as lines:
        for line in lines:
            if "=" in line and not line.startswith("#"):
                key, value = line.rstrip("\n").split("=", 1)
                found.setdefault(key, []).append(value)
    return found


SERVICE, SOCKET = unit("acetate.service"), unit("acetate.socket")


class Manager:
    """In systemd's place."""

    def __init__(self):
        host, port = SOCKET["ListenStream"][0].rsplit(":", 1)
        self.listening = socket.create_server((host, int(port)))
        self.address = (host, int(port))
        self.path = f"{ROOT}/run/notify"
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.path)
        os.chmod(self.path, 0o777)
        self.notify.settimeout(DEADLINE)

    def start(self, before=()):
        """Starts the service's command behind the words `before`."""
        user = SERVICE["User"][0]
        # Descriptor 3 and the process's own number are set by a shell, as it becomes the program.
        script = 'export LISTEN_PID=$$; exec "$@" 3<&0 0</dev/null'
        words = ["chroot", ROOT, "setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        words += ["--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all"]
        words += ["sh", "-c", script, "sh"]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "NOTIFY_SOCKET": "/run/notify",
            "WATCHDOG_USEC": "400000",
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": SOCKET["FileDescriptorName"][0],
            "XDG_RUNTIME_DIR": "/run/acetate-server",
        }
        command = [*before, *words, *shlex.split(SERVICE["ExecStart"][0])]
        with open(f"{RUN}/service.log", "a") as log:
            self.child = subprocess.Popen(
                command, stdin=self.listening, env=environment, stderr=log, umask=0o077)
        self.until("READY=1")
        self.process = main_process()

    def until(self, line):
        """The messages up to the first with this line."""
        seen = []
        while True:
            seen.append(self.notify.recv(8192).decode().splitlines())
            if line in seen[-1]:
                return seen

    def stop(self):
        os.kill(self.process, signal.SIGTERM)
        self.until("STOPPING=1")
        code = self.child.wait(DEADLINE)
        assert code == 0, f"the service ends with {code}"


def main_process():
    """The number of the server's process."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as words:
                words = words.read().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"/usr/bin/acetate", b"serve"]:
            return int(number)
    raise AssertionError("no server runs")


def opaque(data):
    return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)


class Client:
    """A client at a privileged port that sends a call again if the connection ends."""

    def __init__(self, address):
        self.address, self.stream, self.xid, self.longest = address, None, 0, 0
        self.connections = 0

    def connect(self):
        for port in range(1023, 600, -1):
            try:
                self.stream = socket.create_connection(
                    self.address, timeout=DEADLINE, source_address=("127.0.0.1", port))
                self.connections += 1
                return
            except OSError as error:
                # Ports of earlier connections are busy; a refusal is an error.
                if error.errno not in (98, 99):
                    raise
        raise AssertionError("no privileged port is free")

    def once(self, record):
        if self.stream is None:
            self.connect()
        self.stream.sendall(struct.pack(">I", len(record) | 1 << 31) + record)
        length = struct.unpack(">I", self.exactly(4))[0] & 0x7FFFFFFF
        return self.exactly(length)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def call(self, program, procedure, args):
        self.xid += 1
        auth = struct.pack(">9I", 1, 20, 0, 0, 0, 0, 0, 0, 0)
        record = struct.pack(">6I", self.xid, 0, 2, program, 3, procedure) + auth + args
        begun = time.monotonic()
        while True:
            try:
                reply = self.once(record)
                break
            except (ConnectionResetError, BrokenPipeError):
                self.stream = None
        self.longest = max(self.longest, time.monotonic() - begun)
        assert struct.unpack(">6I", reply[:24]) == (self.xid, 1, 0, 0, 0, 0), reply
        return reply[24:]

    def done(self, program, procedure, args):
        reply = self.call(program, procedure, args)
        status = struct.unpack(">I", reply[:4])[0]
        assert status == 0, f"procedure {procedure}: status {status}"
        return reply[4:]

    def mount(self, path):
        reply = self.done(MOUNT, 1, opaque(path.encode()))
        length = struct.unpack(">I", reply[:4])[0]
        return reply[4:4 + length]

    def create(self, root, name):
        reply = self.done(NFS, 8, opaque(root) + opaque(name) + struct.pack(">7I", *[0] * 7))
        length = struct.unpack(">I", reply[4:8])[0]
        return reply[8:8 + length]

    def write(self, file, data):
        return self.call(NFS, 7, opaque(file) + struct.pack(">QII", 0, len(data), 2) + opaque(data))

    def put(self, root, name, data):
        file = self.create(root, name)
        assert self.write(file, data)[:4] == bytes(4), name
        reply = self.done(NFS, 6, opaque(file) + struct.pack(">QI", 0, len(data)))
        assert reply.endswith(opaque(data)), name
        self.done(NFS, 21, opaque(file) + struct.pack(">QI", 0, 0))


def work(manager):
    """All kinds of work: an export, guards, a reload, a secret path."""
    client = Client(manager.address)
    client.call(NFS, 0, b"")
    client.put(client.mount("/scratch"), b"hello", b"of a client")
    exports = f"{ROOT}/etc/acetate/exports.toml"
    with open(exports) as file:
        before = file.read()
    with open(f"{ROOT}/etc/acetate/schema.json", "w") as schema:
        schema.write('{"type": "object"}')
    os.chmod(f"{ROOT}/etc/acetate/schema.json", 0o644)
    with open(exports, "w") as file:
        file.write(before + GUARDED + SECRET)
    os.kill(manager.process, signal.SIGHUP)
    messages = manager.until("READY=1")
    reloading = [message for message in messages if "RELOADING=1" in message]
    assert reloading and reloading[0][1].startswith("MONOTONIC_USEC="), messages
    assert "STATUS=serving 3 exports" in messages[-1], messages
    root = client.mount("/guarded")
    client.put(root, b"object.json", b"{}")
    client.put(root, b"checked", b"good")
    for name, bad in ((b"object.json", b"[]"), (b"checked", b"bad!")):
        reply = client.done(NFS, 3, opaque(root) + opaque(name))
        length = struct.unpack(">I", reply[:4])[0]
        status = client.write(reply[4:4 + length], bad)[:4]
        assert status == struct.pack(">I", 22), f"{name}: {status}"
    tokens = os.stat(f"{ROOT}/etc/acetate/exports.toml.tokens")
    assert tokens.st_mode & 0o777 == 0o600, "the tokens"
    manager.until("WATCHDOG=1")
    with open(exports, "w") as file:
        file.write(before)
    os.unlink(f"{ROOT}/etc/acetate/schema.json")


def restart_beside_a_client(manager):
    stop, failures, made = threading.Event(), [], [0]
    client = Client(manager.address)

    def run():
        try:
            root = client.mount("/scratch")
            while not stop.is_set():
                client.put(root, b"loop-%d" % made[0], b"x" * 100)
                made[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(2):
        wanted = made[0] + 20
        while made[0] < wanted and thread.is_alive():
            time.sleep(0.01)
        manager.stop()
        manager.start()
    wanted = made[0] + 20
    while made[0] < wanted and thread.is_alive():
        time.sleep(0.01)
    stop.set()
    thread.join(DEADLINE)
    if failures:
        raise failures[0]
    assert client.connections >= 3, client.connections
    print(f"restarts: 2 beside a client, {made[0]} files, 0 errors,"
          f" longest stall {client.longest * 1000:.0f} ms")


def expanded(names):
    """System calls of sets, as systemd-analyze of ROOT knows them."""
    calls = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        listed = subprocess.run(
            ["chroot", ROOT, "systemd-analyze", "syscall-filter", name],
            check=True, capture_output=True, text=True).stdout
        lines = [line.strip() for line in listed.splitlines()[1:]]
        calls |= expanded([line for line in lines if line and not line.startswith("#")])
    return calls


def compare_calls(trace):
    """No call of the server is outside the unit's filter."""
    allowed, denied = SERVICE["SystemCallFilter"]
    assert denied.startswith("~"), denied
    allowed = expanded(allowed.split()) - expanded(denied[1:].split())
    with open(trace, errors="replace") as lines:
        text = lines.read()
    # The server's own calls begin with its execve.
    text = text[text.index('execve("/usr/bin/acetate"'):]
    used = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", text, re.M)) - {"execve"}
    outside = sorted(used - allowed)
    assert not outside, f"system calls outside the filter: {outside}"
    executable = re.findall(r"(?:mmap|mprotect)\([^\n]*PROT_WRITE\|PROT_EXEC[^\n]*", text)
    assert not executable, f"memory that MemoryDenyWriteExecute refuses: {executable[:3]}"
    print(f"system calls: {len(used)} different, all within the filter")


os.makedirs(f"{ROOT}/run/acetate-server", exist_ok=True)
owner = os.stat(f"{ROOT}/var/lib/acetate")
os.chown(f"{ROOT}/run/acetate-server", owner.st_uid, owner.st_gid)
manager = Manager()
trace = f"{RUN}/trace"
manager.start(["strace", "-f", "-qq", "-e", "signal=none", "-o", trace])
work(manager)
manager.stop()
compare_calls(trace)
manager.start()
restart_beside_a_client(manager)
manager.stop()
manager.listening.close()

# The same by systemd's own tool, which starts the server at the first connection.
command = ["chroot", ROOT, "systemd-socket-activate", "-l", SOCKET["ListenStream"][0],
           "--fdname", SOCKET["FileDescriptorName"][0], *shlex.split(SERVICE["ExecStart"][0])]
activated = subprocess.Popen(command, stderr=subprocess.DEVNULL)
begun = time.monotonic()
while True:
    try:
        socket.create_connection(manager.address).close()
        break
    except ConnectionRefusedError:
        assert time.monotonic() < begun + DEADLINE, "systemd-socket-activate does not listen"
        time.sleep(0.05)
Client(manager.address).call(NFS, 0, b"")
activated.terminate()
assert activated.wait(DEADLINE) == 0, "the activated server"
print("service: notified, reloaded, watched, restarted, stopped: ok")
