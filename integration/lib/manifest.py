#!/usr/bin/env python3
"""Prints a line for each object below a directory, with everything that must not change.

Usage: manifest.py DIR [IGNORED]

A line holds: path, type and mode, owner, group, links, device, size, mtime, ctime and (except
for symlinks, which cannot be read without moving it) atime in nanoseconds, and the SHA-256 of
the content or the link's target. Reads with O_NOATIME, so that looking changes nothing.

IGNORED is the beginning of a path, relative to DIR, that is left out, and so are the size and the
times of the directory that it lies in.
"""

import hashlib
import os
import stat
import sys

QUIET = os.O_RDONLY | os.O_NOATIME | os.O_NOFOLLOW


def content(path, mode):
    """The hash of a file, the target of a link, nothing for the rest."""
    if stat.S_ISLNK(mode):
        return ascii(os.readlink(path))
    if not stat.S_ISREG(mode):
        return "-"
    with open(os.open(path, QUIET), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def line(path, restless):
    """The line of one object; of a restless directory, only what others' entries do not move."""
    at = os.lstat(path)
    if restless:
        return f"{ascii(path)} {at.st_mode:o} {at.st_uid}:{at.st_gid}"
    atime = "-" if stat.S_ISLNK(at.st_mode) else at.st_atime_ns
    return (
        f"{ascii(path)} {at.st_mode:o} {at.st_uid}:{at.st_gid} nlink={at.st_nlink}"
        f" rdev={at.st_rdev} size={at.st_size} mtime={at.st_mtime_ns} ctime={at.st_ctime_ns}"
        f" atime={atime} {content(path, at.st_mode)}"
    )


def children(path):
    """The names in a directory, sorted; the directory's atime stays."""
    fd = os.open(path, QUIET | os.O_DIRECTORY)
    try:
        return sorted(os.fsencode(name) for name in os.listdir(fd))
    finally:
        os.close(fd)


def main():
    root = os.fsencode(sys.argv[1])
    ignored = os.path.join(root, os.fsencode(sys.argv[2])) if len(sys.argv) > 2 else None
    pending = [root]
    while pending:
        path = pending.pop()
        if ignored and path.startswith(ignored):
            continue
        print(line(path, restless=ignored and path == os.path.dirname(ignored)))
        if stat.S_ISDIR(os.lstat(path).st_mode):
            pending += [os.path.join(path, name) for name in reversed(children(path))]


main()
