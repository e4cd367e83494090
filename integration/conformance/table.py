#!/usr/bin/env python3
"""Prints the results of a run as a table in Markdown: table.py RUN VERSION SUITE...

RUN has results.tsv (suite, version, run, passed, failed), skips.tsv (suite, count, reason) and
failures.tsv (suite, name, reason where it was expected). Exits 1 if a suite has no result, ran
nothing, or has a failure that was not expected.
"""

import datetime
import os
import sys


def rows(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines if line.strip()]


def main():
    run, version, suites = sys.argv[1], sys.argv[2], sys.argv[3:]
    results = rows(f"{run}/results.tsv")
    skips, failures = rows(f"{run}/skips.tsv"), rows(f"{run}/failures.tsv")
    is_bad = False
    print(f"\n{version}, {datetime.date.today()}\n")
    print("| suite | version | run | pass | fail | skipped, and why |")
    print("|---|---|---|---|---|---|")
    for suite in suites:
        mine = [row for row in results if row[0].split(" ")[0] == suite]
        if not mine:
            is_bad = True
            print(f"| {suite} | | 0 | 0 | no result: see {run}/logs/{suite} | |")
        for name, at, count, passed, failed in mine:
            reasons = [f"{skip[1]}: {skip[2]}" for skip in skips if skip[0] == name]
            print(f"| {name} | {at} | {count} | {passed} | {failed} | {'; '.join(reasons) or '0'} |")
            is_bad = is_bad or int(count) == 0
    if failures:
        print("\n| failure | expected, because |\n|---|---|")
    for suite, name, reason in failures:
        print(f"| {suite}: {name} | {reason or '**not expected**'} |")
        is_bad = is_bad or not reason
    known = sum(1 for failure in failures if failure[2])
    total = sum(int(row[4]) for row in results)
    if total > len(failures):
        print(f"\n{total - len(failures)} failures have no name")
        is_bad = True
    if known:
        print(f"\n{known} of {total} failures were expected")
    sys.exit(is_bad)


main()
