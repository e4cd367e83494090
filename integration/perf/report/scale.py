"""The table of what operations cost in a session of many files by their cost in one of few."""

import itertools
import statistics

import markdown

TITLE = "Operations in a session of a million files"
LEFT = (0, 6)

# Name in the results, title.
STEPS = [
    ("lookup", "LOOKUP of a directory and a file"),
    ("getattr", "these, GETATTR"),
    ("read", "these, READ of 256 bytes"),
    ("readdirplus", "LOOKUP, READDIRPLUS of 1,000 entries"),
    ("setattr", "LOOKUP twice, SETATTR"),
    ("create-write-commit-remove", "LOOKUP, CREATE, WRITE, COMMIT, REMOVE"),
    ("rename", "LOOKUP, RENAME there and back"),
]
# A step may cost so many times what it costs in the smaller session.
MOST = 1.5


def report(results):
    """The table's lines, and its rows as objects."""
    results = [one for one in results if "files" in one]
    counts = sorted({one["files"] for one in results})
    if len(counts) != 2:
        return [], []
    few, many = counts
    titles = ["operations", f"µs at {few:,}", f"µs at {many:,}", "cpu", "ratio", "at most", ""]
    lines, rows = [titles], []
    for at_home, (what, title) in itertools.product((True, False), STEPS):
        row = {"part": "scale", "what": what, "title": title, "at_home": at_home}
        for name, files in (("few", few), ("many", many)):
            key = (what, files, at_home)
            found = [
                one for one in results if (one["what"], one["files"], one["at_home"]) == key
            ]
            row[f"{name}_us"] = statistics.median(one["value"] for one in found)
            row[f"{name}_cpu_us"] = statistics.median(one["server_us"] for one in found)
        row["ratio"] = row["many_us"] / row["few_us"]
        row["cpu_ratio"] = row["many_cpu_us"] / row["few_cpu_us"]
        row["at_most"] = MOST if at_home else None
        rows.append(row)
        figures = [f"{row[key]:,.0f}" for key in ("few_us", "many_us")]
        ratios = [f"{row[key]:.2f}" for key in ("cpu_ratio", "ratio")]
        bound = ["", ""]
        if at_home:
            bound = [f"{MOST:.1f}", "reached" if row["ratio"] <= MOST else "above"]
        lines.append([title + ("" if at_home else ", anywhere"), *figures, *ratios, *bound])
    return list(markdown.table(lines, LEFT)), rows
