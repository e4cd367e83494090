#!/usr/bin/env python3
"""Makes a tree of small files, the same one each time.

Usage: make_tree.py DIR FILES [PER_DIRECTORY [BYTES]]

The files lie in directories of PER_DIRECTORY (100), two levels deep, and hold their own name
repeated up to BYTES (200).
"""

import os
import sys


def main():
    root, files = sys.argv[1], int(sys.argv[2])
    per_directory = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    size = int(sys.argv[4]) if len(sys.argv) > 4 else 200
    for number in range(files):
        group = number // per_directory
        directory = f"{root}/{group // 16:03}/{group:05}"
        if number % per_directory == 0:
            os.makedirs(directory, exist_ok=True)
        name = f"file-{number:06}"
        line = f"{name}\n".encode()
        with open(f"{directory}/{name}", "wb") as file:
            file.write((line * (size // len(line) + 1))[:size])


main()
