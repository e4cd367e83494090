"""Holds a listening TCP socket and runs a server with it, as systemd does: held_socket.py PIDFILE
ADDRESS PORT COMMAND...

The server is started again at once whenever it ends, until this gets SIGTERM; its own pid is written
to PIDFILE each time. Connections that come between two servers wait in the socket's backlog.
"""

import os
import signal
import socket
import sys

FIRST_FD = 3


def begin(held, command):
    """Starts the server, which finds the socket by LISTEN_FDS; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    if held.fileno() != FIRST_FD:
        os.dup2(held.fileno(), FIRST_FD)
    os.set_inheritable(FIRST_FD, True)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="nfs")
    os.execvp(command[0], command)


def main():
    pid_file, address, port, *command = sys.argv[1:]
    held = socket.create_server((address, int(port)), backlog=128)
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True) or os.kill(pid, signal.SIGTERM))
    while True:
        pid = begin(held, command)
        with open(pid_file + ".new", "w", encoding="ascii") as file:
            file.write(f"{pid}\n")
        os.rename(pid_file + ".new", pid_file)
        _, status = os.waitpid(pid, 0)
        print(f"the server ended with status {status}", file=sys.stderr, flush=True)
        if ended:
            sys.exit(os.waitstatus_to_exitcode(status))


main()
