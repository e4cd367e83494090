"""The table of figures that have a bound of their own, and not one by the yardstick."""

import os
import statistics

import markdown

TITLE = "Figures with a bound of their own"
LEFT = (0, 1, 4)

# What a figure of this part and beginning may be at most; the others have no bound.
MOST = [
    ("scale", "start", 50),
    ("memory", "idle", 15),
    ("memory", "after a walk", 64),
    ("first-byte", "WRITE of a byte", 50),
    ("first-byte", "the session's growth at its peak", 1.5),
    ("first-byte", "the session's growth in the end", 1.1),
    ("size", "the session with its log", 1.1),
    ("size", "the log at its peak", 64),
    ("size", "the empty session after", 4),
    ("checkpoints", "a checkpoint in memory", 1),
    ("checkpoints", "`acetate checkpoint ls` of 10,000", 100),
    ("checkpoints", "a restore of 10 of", 10),
    ("checkpoints", "restore of", 1000),
    ("checkpoints", "with 10,000 checkpoints", 1.03),
    ("checkpoints", "with a checkpoint each 20 changes: WRITE", 1.25),
    ("checkpoints", "with a checkpoint each 20 changes", 1.1),
    ("fleet", "start, 10000 sessions", 100),
    ("fleet", "start, 10000 written", 1000),
    ("fleet", "memory, 10000 sessions", 32),
    ("fleet", "memory, 10000 written", 64),
    ("fleet", "memory, 500 sessions open", 160),
    ("fleet", "memory, 500 sessions after", 256),
    ("fleet", "threads, ", 8 + 4 * os.cpu_count()),
    ("fleet", "descriptors, 500 sessions", 64 + 6 * 500 + 1024),
    ("fleet", "an empty session at rest", 192),
    ("fleet", "an empty session, open", 256),
    ("fleet", "first call to a closed session: p99", 15),
    ("fleet", "first call to a session after kill -9: p99", 100),
    ("fleet", "MNT that makes four sessions", 50),
    ("fleet", "new files of 200 clients: rate in one", 1 / 0.3),
    ("fleet", "GETATTR: rate alone", 1 / 0.5),
    ("fleet", "in turn: memory", 16),
    ("fleet", "in turn: descriptors", 0),
    ("fleet", "in turn: stale", 0),
]
# Units of times, and of their ratios: a machine that does more else is no failure.
TIMES = ("ms", "times")
# In MiB, in any part.
MOST_MEMORY = 128


def report(results):
    """The table's lines, and its rows as objects."""
    values, units = {}, {}
    for one in results:
        if "unit" in one and "files" not in one:
            key = (one["part"], one["what"])
            values.setdefault(key, []).append(one["value"])
            units[key] = one["unit"]
    rows = []
    for (part, what), found in values.items():
        row = {"part": part, "what": what, "unit": units[part, what]}
        row["value"] = statistics.median(found)
        row["spread"] = max(found) - min(found)
        row["at_most"] = bound(part, what)
        rows.append(row)
    peaks = [one["peak_kib"] for one in results if one["server"] == "acetate" and "peak_kib" in one]
    if peaks:
        rows.append({
            "part": "all", "what": "the server's memory at its worst moment", "unit": "MiB",
            "value": max(peaks) / 1024, "spread": 0, "at_most": MOST_MEMORY,
        })
    lines = [["part", "figure", "acetate", "at most", ""]]
    for row in rows:
        most = row["at_most"]
        verdict = "" if most is None else "reached" if row["value"] <= most else "above"
        value = f"{row['value']:,.2f} {row['unit']}"
        bound_text = "" if most is None else f"{most:.4g}"
        lines.append([row["part"], row["what"], value, bound_text, verdict])
    return (list(markdown.table(lines, LEFT)), rows) if rows else ([], [])


def missed(rows):
    """The rows that are above their bound, of those whose figure is not a time."""
    of_size = [row for row in rows if "value" in row and row["unit"] not in TIMES]
    return [row for row in of_size if row["at_most"] is not None and row["value"] > row["at_most"]]


def bound(part, what):
    return next((most for one, begin, most in MOST if one == part and what.startswith(begin)), None)
