"""Prints what an NFS mount has called between two copies of /proc/self/mountstats, as JSON.

Usage: calls.py BEFORE AFTER: by procedure, the calls and the milliseconds until their answers.
"""

import json
import re
import sys


def calls(path):
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            match = re.fullmatch(r"\s+([A-Z]+): ([\d ]+)", line.rstrip())
            if match:
                figures = [int(word) for word in match[2].split()]
                count, milliseconds = found.get(match[1], (0, 0))
                found[match[1]] = (count + figures[0], milliseconds + figures[6])
    return found


before, after = calls(sys.argv[1]), calls(sys.argv[2])
changed = {}
for name, (count, milliseconds) in sorted(after.items()):
    count_before, milliseconds_before = before.get(name, (0, 0))
    if count > count_before:
        changed[name] = [count - count_before, milliseconds - milliseconds_before]
print(json.dumps(changed))
