"""Runs cases, or rounds of failovers.

Usage: suite.py RUN [--rounds N] [--seed N] [CASE]...
"""

import argparse
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

import bad_input
import exports
import failovers
import faults
from pair import Pair, Suite
from servers import Database

PAIRS = {
    "kill": failovers.kill,
    "follow": failovers.follow,
    "stop": failovers.stop,
    "freeze": failovers.freeze,
    "partition-short": failovers.partition_short,
    "partition-long": failovers.partition_long,
    "stop-without-database": faults.stop_without_database,
    "vanish": faults.vanish,
    "far": faults.far,
    "crashes": faults.crashes,
    "cuts": faults.cuts,
    "full": faults.full,
    "restored": faults.restored,
}


def with_pair(suite, name, case):
    pair = Pair(suite, name)
    try:
        case(pair)
        return pair.finish()
    finally:
        pair.kill()


def rounds(suite, count):
    """Failovers of all kinds in random order, over one load."""

    def run(pair):
        deck = []
        for number in range(1, count + 1):
            # Each kind comes equally often.
            deck = deck or suite.random.sample(failovers.ROUNDS, len(failovers.ROUNDS))
            case = deck.pop()
            try:
                case(pair)
                pair.verify()
            except BaseException:
                print(f"round {number}: {case.__name__}", flush=True)
                raise

    return with_pair(suite, "rounds", run)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--lease", type=int, default=3)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_intermixed_args()
    unknown = set(args.cases) - set(PAIRS) - {"bad-input", "exports"}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    database = Database(args.run / "cluster")
    try:
        return run(args, Suite(args.run, database, args.seed, args.lease))
    finally:
        database.stop()


def run(args, suite):
    """Runs the chosen cases; the exit status."""
    todo = {name: lambda name=name: with_pair(suite, name, PAIRS[name]) for name in PAIRS}
    todo["bad-input"] = lambda: bad_input.run(suite)
    todo["exports"] = lambda: exports.run(suite)
    if args.rounds:
        todo["rounds"] = lambda: rounds(suite, args.rounds)
    chosen = args.cases or (["rounds"] if args.rounds else list(todo))
    failed = 0
    for name in chosen:
        begun = time.monotonic()
        try:
            what = todo[name]()
        except Exception:  # noqa: BLE001  each case by itself
            failed += 1
            traceback.print_exc()
            print(f"{name}: FAILED (seed {args.seed}); logs: {args.run}/failed-{name}", flush=True)
            keep = args.run / f"failed-{name}"
            shutil.rmtree(keep, ignore_errors=True)
            keep.mkdir()
            for log in args.run.glob("server-*.log"):
                shutil.copy(log, keep)
        else:
            print(f"{name}: ok, {time.monotonic() - begun:.0f} s; {what}", flush=True)
    suite.tell_stalls()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
