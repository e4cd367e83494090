#!/usr/bin/env python3
"""Checks a session against the consistency rules of the AgentFS specification 0.4.

Usage: check_session.py SESSION.db [--base DIR]

Needs nothing of ours: the tables as the specification has them and Python's own sqlite3.
Prints a line for each violation and exits 1; prints one line of figures and exits 0 otherwise.
With --base, the base directory that the session records must be DIR, and whiteouts must be of
something that lies below it.
"""

import argparse
import os
import sqlite3
import stat
import sys

TABLES = (
    "tool_calls fs_config fs_inode fs_dentry fs_data fs_symlink fs_whiteout fs_origin kv_store"
    " fs_overlay_config"
).split()
KINDS = {
    stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK,
    stat.S_IFSOCK,
}
ROOT = 1
SHOWN = 20  # violations of one kind; more are counted


class Session:
    """The rows of a session that all checks need, with names and paths as bytes."""

    def __init__(self, path):
        uri = f"file:{path.replace('%', '%25').replace('?', '%3f')}?mode=ro"
        self.db = sqlite3.connect(uri, uri=True)
        self.db.text_factory = bytes
        self.tables = {row[0].decode() for row in self.rows("SELECT name FROM sqlite_master")}
        self.problems = {}

    def rows(self, query, *arguments):
        return self.db.execute(query, arguments)

    def load(self):
        self.inodes = {row[0]: row[1:] for row in self.rows(
            "SELECT ino, mode, nlink, size FROM fs_inode")}
        self.dentries = self.rows(
            "SELECT parent_ino, name, ino, typeof(name) FROM fs_dentry").fetchall()
        self.children = {}
        self.names = {}
        for parent, name, ino, _ in self.dentries:
            self.children.setdefault(parent, []).append((name, ino))
            self.names.setdefault(ino, []).append((parent, name))

    def problem(self, kind, text):
        self.problems.setdefault(kind, []).append(text)

    def mode(self, ino):
        return self.inodes[ino][0] if ino in self.inodes else 0


def check_tables(session):
    """Every table is there."""
    for table in TABLES:
        if table not in session.tables:
            session.problem("table", f"{table} is missing")


def check_inodes(session):
    """The root exists, modes name one kind, nanoseconds are below a second."""
    if not stat.S_ISDIR(session.mode(ROOT)):
        session.problem("root", "inode 1 is missing or is not a directory")
    for ino, (mode, _, size) in session.inodes.items():
        if stat.S_IFMT(mode) not in KINDS or mode >> 16:
            session.problem("mode", f"inode {ino}: mode {mode:#o}")
        if not isinstance(size, int) or size < 0:
            session.problem("size", f"inode {ino}: size {size!r}")
    bad = session.rows(
        "SELECT ino FROM fs_inode WHERE atime_nsec NOT BETWEEN 0 AND 999999999"
        " OR mtime_nsec NOT BETWEEN 0 AND 999999999 OR ctime_nsec NOT BETWEEN 0 AND 999999999")
    for (ino,) in bad:
        session.problem("time", f"inode {ino}: nanoseconds out of range")


def check_dentries(session):
    """Dentries lead from a directory to an inode; names are possible, and stored as they should."""
    seen = set()
    for parent, name, ino, kind in session.dentries:
        entry = f"{name!r} in {parent}"
        if ino not in session.inodes:
            session.problem("dentry", f"{entry}: no inode {ino}")
        if not stat.S_ISDIR(session.mode(parent)):
            session.problem("parent", f"{entry}: the parent is no directory")
        if ino == ROOT:
            session.problem("dentry", f"{entry}: names the root")
        if name in (b"", b".", b"..") or b"/" in name or b"\0" in name or len(name) > 255:
            session.problem("name", f"{entry}: not a possible name")
        if kind != ("text" if is_utf8(name) else "blob").encode():
            session.problem("name", f"{entry}: stored as {kind.decode()}")
        if (parent, name) in seen:
            session.problem("name", f"{entry}: twice")
        seen.add((parent, name))


def is_utf8(name):
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_links(session):
    """nlink is the number of names: 1 for the root and every directory; none is an orphan."""
    for ino, (mode, nlink, _) in session.inodes.items():
        names = 1 if ino == ROOT else len(session.names.get(ino, ()))
        if names == 0:
            session.problem("orphan", f"inode {ino} has no name")
        elif stat.S_ISDIR(mode) and names > 1:
            session.problem("nlink", f"directory {ino} has {names} names")
        if nlink != names:
            session.problem("nlink", f"inode {ino}: nlink {nlink}, names {names}")


def check_data(session):
    """Chunks are of regular files, within the size, and exactly as long as the size says."""
    value = session.rows("SELECT value FROM fs_config WHERE key = 'chunk_size'").fetchone()
    chunk_size = int(value[0]) if value and value[0].isdigit() else 0
    if chunk_size < 1:
        session.problem("config", f"chunk_size is {value!r}")
        return
    for ino, index, length, kind in session.rows(
            "SELECT ino, chunk_index, length(data), typeof(data) FROM fs_data"):
        chunk = f"inode {ino} chunk {index}"
        mode, _, size = session.inodes.get(ino, (0, 0, 0))
        if not stat.S_ISREG(mode):
            session.problem("data", f"{chunk}: of no regular file (mode {mode:#o})")
        elif index < 0 or index * chunk_size >= size:
            session.problem("data", f"{chunk}: beyond the size {size}")
        elif length != min(chunk_size, size - index * chunk_size):
            session.problem("data", f"{chunk}: {length} bytes, the size is {size}")
        if kind != b"blob":
            session.problem("data", f"{chunk}: stored as {kind.decode()}")


def check_symlinks(session):
    """Each symlink has a target as long as its size, and nothing else has one."""
    targets = dict(session.rows("SELECT ino, target FROM fs_symlink"))
    for ino, target in targets.items():
        if not stat.S_ISLNK(session.mode(ino)):
            session.problem("symlink", f"inode {ino} has a target and is no symlink")
        elif len(target) != session.inodes[ino][2]:
            session.problem("symlink", f"inode {ino}: size {session.inodes[ino][2]}: {target!r}")
    for ino, (mode, _, _) in session.inodes.items():
        if stat.S_ISLNK(mode) and ino not in targets:
            session.problem("symlink", f"inode {ino} has no target")


def live_paths(session):
    """Walks down from the root: the path of every dentry. What it cannot reach is a problem."""
    paths, reached, pending = {}, {ROOT}, [(ROOT, b"")]
    while pending:
        parent, prefix = pending.pop()
        for name, ino in session.children.get(parent, ()):
            path = prefix + b"/" + name
            paths[path] = ino
            if ino not in reached and stat.S_ISDIR(session.mode(ino)):
                pending.append((ino, path))
            reached.add(ino)
    for ino in session.inodes:
        if ino not in reached and session.names.get(ino):
            session.problem("orphan", f"inode {ino} is not reachable from the root")
    return paths


def parent_of(path):
    """`/foo/bar` has parent `/foo`; `/foo` and `/` have `/`."""
    return path.rsplit(b"/", 1)[0] or b"/"


def check_whiteouts(session, base):
    """Paths are normalised, parents derived from them, and nothing live is at or under one."""
    whiteouts = dict(session.rows("SELECT path, parent_path FROM fs_whiteout"))
    for path, parent in whiteouts.items():
        parts = path.split(b"/")
        if path == b"/" or parts[0] != b"" or any(p in (b"", b".", b"..") for p in parts[1:]):
            session.problem("whiteout", f"{path!r} is not a normalised absolute path")
        if parent != parent_of(path):
            session.problem("whiteout", f"{path!r}: parent_path {parent!r}")
    for path in live_paths(session):
        above = path
        while above != b"/":
            if above in whiteouts:
                session.problem("whiteout", f"{path!r} is live under the whiteout {above!r}")
                break
            above = parent_of(above)
    # Where nothing is redirected, a path in the session is the same path in the base.
    redirected = "acetate_redirect" in session.tables and session.rows(
        "SELECT 1 FROM acetate_redirect LIMIT 1").fetchone()
    for path in whiteouts if base and not redirected else ():
        if not os.path.lexists(os.fsencode(base) + path):
            session.problem("whiteout", f"{path!r} is not in the base")


def check_origins(session):
    """An origin is of a live inode, and no two inodes have the same."""
    seen = {}
    for delta, base in session.rows("SELECT delta_ino, base_ino FROM fs_origin"):
        if delta not in session.inodes:
            session.problem("origin", f"inode {delta} does not exist")
        if base in seen:
            session.problem("origin", f"inodes {seen[base]} and {delta} both come from {base}")
        seen[base] = delta


def check_copy_ups(session):
    """What is left to copy is of a file with an origin, and within its size."""
    if "acetate_copy_up" not in session.tables:
        return
    origins = {row[0] for row in session.rows("SELECT delta_ino FROM acetate_origin")}
    value = session.rows("SELECT value FROM fs_config WHERE key = 'chunk_size'").fetchone()
    for ino, begin, end in session.rows(
            "SELECT delta_ino, next_byte, end_byte FROM acetate_copy_up"):
        mode, _, size = session.inodes.get(ino, (0, 0, 0))
        if not stat.S_ISREG(mode) or ino not in origins:
            session.problem("copy-up", f"inode {ino} is no file from the base")
        elif not 0 <= begin < end <= size or begin % int(value[0]):
            session.problem("copy-up", f"inode {ino}: {begin} to {end}, the size is {size}")


def check_base(session, base):
    """The session records the base directory that it was served with."""
    row = session.rows("SELECT value FROM fs_overlay_config WHERE key = 'base_path'").fetchone()
    want = os.fsencode(base) if base else None
    got = row[0] if row else None
    if want != got:
        session.problem("base", f"base_path is {got!r}, not {want!r}")


def check_tool_calls(session):
    """Insert-only rows with either a result or an error."""
    bad = session.rows(
        "SELECT id FROM tool_calls WHERE (result IS NULL) = (error IS NULL)"
        " OR completed_at IS NULL OR completed_at < started_at")
    for (number,) in bad:
        session.problem("tool_calls", f"row {number}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("session")
    parser.add_argument("--base")
    arguments = parser.parse_args()
    session = Session(arguments.session)
    check_tables(session)
    if not session.problems:
        session.load()
        for check in (check_inodes, check_dentries, check_links, check_data, check_symlinks,
                      check_origins, check_copy_ups, check_tool_calls):
            check(session)
        check_whiteouts(session, arguments.base)
        check_base(session, arguments.base)
    for kind, texts in session.problems.items():
        for text in texts[:SHOWN]:
            print(f"{kind}: {text}")
        if len(texts) > SHOWN:
            print(f"{kind}: and {len(texts) - SHOWN} more")
    if session.problems:
        sys.exit(1)
    print(f"session: {len(session.inodes)} inodes, {len(session.dentries)} names, sound")


main()
