"""The table of a session in a database, beside one in a file."""

import statistics

import markdown

DATABASE = "postgres"
FILE = "acetate"
YARDSTICK = "ganesha"

TITLE = "A session in PostgreSQL"

# Columns of the table that are words.
LEFT = (0, 2)

# Name in the results, title, unit, ratio to a session in a file that is to be reached over one
# connection, and over eight.
OPERATIONS = [
    ("getattr", "GETATTR", "call/s", 0.9, 0.9),
    ("lookup", "LOOKUP", "call/s", 0.9, 0.9),
    ("readdirplus", "READDIRPLUS, 10,000 entries", "entry/s", 0.9, 0.9),
    ("read-large-base", "READ 1 MiB, base", "MiB/s", 0.9, 0.9),
    ("read-large-delta", "READ 1 MiB, delta", "MiB/s", 0.9, 0.9),
    ("create-write-commit", "CREATE + WRITE 4 KiB + COMMIT", "file/s", 0.3, 0.25),
    ("setattr", "SETATTR", "call/s", None, None),
    ("rename", "RENAME", "call/s", None, None),
    ("mkdir", "MKDIR", "call/s", None, None),
    ("remove-delta", "REMOVE, delta", "call/s", None, None),
    ("write-large", "WRITE 1 MiB + one COMMIT", "MiB/s", None, None),
]


def report(results):
    """The table's lines, and its rows as objects."""
    rates, peaks = {}, {}
    for one in results:
        if "peak_kib" in one:
            peaks[one["server"]] = max(peaks.get(one["server"], 0), one["peak_kib"])
        else:
            key = (one["operation"], one["connections"], one["server"])
            rates.setdefault(key, []).append(one["rate"])
    rows = []
    for name, title, unit, *reach in OPERATIONS:
        for place, count in enumerate(sorted({count for _, count, _ in rates})):
            row = {"part": "postgres", "operation": name, "title": title}
            row |= {"connections": count, "unit": unit, "ratio_to_reach": reach[min(place, 1)]}
            for server in (DATABASE, FILE, YARDSTICK):
                found = rates.get((name, count, server))
                if not found:
                    raise SystemExit(f"error: no rate of {server} for {name}, connections: {count}")
                row[server] = statistics.median(found)
            row["ratio"] = row[DATABASE] / row[FILE]
            row["ganesha_ratio"] = row[DATABASE] / row[YARDSTICK]
            rows.append(row)
    lines = [["operation", "conns", "unit", "database", "file", YARDSTICK, "to a file", "reach", "to ganesha"]]
    for row in rows:
        rates_of_row = [f"{row[server]:,.0f}" for server in (DATABASE, FILE, YARDSTICK)]
        reach = "" if row["ratio_to_reach"] is None else f"{row['ratio_to_reach']:.2f}"
        lines.append([row["title"], str(row["connections"]), row["unit"], *rates_of_row,
                      f"{row['ratio']:.2f}", reach, f"{row['ganesha_ratio']:.2f}"])
    memory = [f"{peaks[s] / 1024:,.0f}" if s in peaks else "n/a" for s in (DATABASE, FILE, YARDSTICK)]
    lines.append(["peak memory", "", "MiB", *memory, "", "", ""])
    for server, kib in sorted(peaks.items()):
        rows.append({"part": "postgres", "server": server, "peak_kib": kib})
    return list(markdown.table(lines, LEFT)), rows
