#!/usr/bin/env python3
"""Compares two trees: names, kinds, modes, owners, mtimes, sizes, contents, hard links.

Usage: compare_trees.py WANT GOT

Prints each difference and exits 1, or prints how much was equal. Hard links are compared as
groups: names that are one object in WANT must be one in GOT, and no others. Directories' link
counts and sizes are their filesystem's own affair.
"""

import os
import stat
import sys

BLOCK = 1 << 20


def names(root):
    """Every path below the root, relative, as bytes."""
    for directory, subdirectories, files in os.walk(root):
        subdirectories.sort()
        for name in subdirectories + files:
            yield os.path.relpath(os.path.join(directory, name), root)


def facts(path):
    """What must be equal, apart from the content."""
    at = os.lstat(path)
    found = {"kind": stat.S_IFMT(at.st_mode), "owner": (at.st_uid, at.st_gid),
             "mode": oct(stat.S_IMODE(at.st_mode)), "mtime": at.st_mtime_ns}
    if not stat.S_ISDIR(at.st_mode):
        found |= {"size": at.st_size, "links": at.st_nlink, "device": at.st_rdev}
    if stat.S_ISLNK(at.st_mode):
        found["target"] = os.readlink(path)
    return found, at


def same_bytes(want, got):
    with open(want, "rb") as left, open(got, "rb") as right:
        while True:
            block = left.read(BLOCK)
            if block != right.read(BLOCK):
                return False
            if not block:
                return True


def main():
    want_root, got_root = (os.fsencode(argument) for argument in sys.argv[1:3])
    want_names, got_names = set(names(want_root)), set(names(got_root))
    differences = [f"missing: {name!r}" for name in sorted(want_names - got_names)]
    differences += [f"too many: {name!r}" for name in sorted(got_names - want_names)]
    objects = {}
    for name in sorted(want_names & got_names):
        want_path, got_path = os.path.join(want_root, name), os.path.join(got_root, name)
        (want, want_at), (got, got_at) = facts(want_path), facts(got_path)
        differences += [f"{name!r}: {key}: {want[key]!r}, got {got.get(key)!r}"
                        for key in want if want[key] != got.get(key)]
        if want["kind"] == got["kind"] == stat.S_IFREG and not same_bytes(want_path, got_path):
            differences.append(f"{name!r}: content")
        if not stat.S_ISDIR(want_at.st_mode):
            objects.setdefault(want_at.st_ino, set()).add(got_at.st_ino)
    differences += [f"hard links: one object became {len(inos)}"
                    for inos in objects.values() if len(inos) > 1]
    for difference in differences[:40]:
        print(difference)
    if differences:
        print(f"{len(differences)} differences")
        sys.exit(1)
    print(f"{len(want_names)} objects are equal")


main()
