#!/usr/bin/env python3
"""Compares two logs of pjdfstest: what passes in the first must pass in the second.

Usage: compare_pjdfstest.py LOCAL.txt NFS.txt EXCEPTIONS

EXCEPTIONS has a line `CASE: REASON` for each case that may differ; it must then really fail.
Prints each disagreement with what the failing case said, and exits 1 if there is one.
"""

import re
import sys

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"^(\S+::\S+)\s+(ok|skipped|FAILED)\s*$")
LEAST = 300  # fewer passes on the local filesystem mean that the run itself went wrong


def results(path):
    """Case to (result, the lines below it)."""
    found, case = {}, None
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            line = COLOUR.sub("", line).rstrip()
            if match := RESULT.match(line):
                case = match[1]
                found[case] = (match[2], [])
            elif case and line.startswith("\t"):
                found[case][1].append(line.strip())
    return found


def exceptions(path):
    """Case to reason; a case without one is an error."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            case, separator, reason = line.strip().partition(": ")
            if not separator or not reason:
                sys.exit(f"{path}: no reason: {line.strip()}")
            found[case] = reason
    return found


def main():
    local, nfs, allowed = results(sys.argv[1]), results(sys.argv[2]), exceptions(sys.argv[3])
    problems = []
    passes = [case for case, (result, _) in local.items() if result == "ok"]
    if len(passes) < LEAST:
        problems.append(f"only {len(passes)} cases pass on the local filesystem")
    for case in passes:
        result, lines = nfs.get(case, ("not run", []))
        if result == "ok" and case in allowed:
            problems.append(f"{case}: listed as an exception, and passes")
        elif result != "ok" and case not in allowed:
            problems.append(f"{case}: {result}: {' '.join(lines)[:300]}")
    for case in allowed.keys() - set(passes):
        problems.append(f"{case}: listed as an exception, and does not pass locally either")
    for name, run in ("ext4", local), ("NFS", nfs):
        counts = [f"{sum(r == word for r, _ in run.values())} {word}"
                  for word in ("ok", "FAILED", "skipped")]
        print(f"{name}: {', '.join(counts)}")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
