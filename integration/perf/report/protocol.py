"""The table of the protocol's operations, one by one."""

import statistics

import markdown

OURS = "acetate"
YARDSTICK = "ganesha"
STOCK = "nfsserve"

TITLE = "Operations of the protocol"

# Columns of the table that are words.
LEFT = (0, 2, 10)

# Name in the results, title, unit, ratio to the yardstick to reach, good ratio.
OPERATIONS = [
    ("null", "NULL", "call/s", 1.0, 1.5),
    ("getattr", "GETATTR", "call/s", 1.0, 1.5),
    ("lookup", "LOOKUP", "call/s", 1.0, 1.5),
    ("lookup-absent", "LOOKUP, absent", "call/s", 1.0, 1.5),
    ("lookup-read", "LOOKUP + READ 4 KiB, base", "file/s", 1.0, 1.3),
    ("read-large-base", "READ 1 MiB, base", "MiB/s", 1.0, 1.2),
    ("read-large-delta", "READ 1 MiB, delta", "MiB/s", 0.8, 1.0),
    ("readdirplus", "READDIRPLUS, 10,000 entries", "entry/s", 1.0, 1.5),
    ("create-write-commit", "CREATE + WRITE 4 KiB + COMMIT", "file/s", 1.5, 3.0),
    ("setattr", "SETATTR", "call/s", 1.0, 2.0),
    ("rename", "RENAME", "call/s", 1.0, 2.0),
    ("mkdir", "MKDIR", "call/s", 1.0, 2.0),
    ("remove-delta", "REMOVE, delta", "call/s", 1.5, 3.0),
    ("remove-base", "REMOVE, base", "call/s", 1.0, 2.0),
    ("write-large", "WRITE 1 MiB + one COMMIT", "MiB/s", 0.6, 1.0),
    ("write-file-sync", "WRITE 4 KiB FILE_SYNC, random", "call/s", 1.0, 2.0),
    ("copy-up", "first WRITE to a base file", "file/s", 0.5, 1.0),
]


def by_operation(results):
    """The results by (operation, connections, server), and the peaks in KiB by server."""
    rates, peaks = {}, {}
    for one in results:
        server = one["server"]
        if "peak_kib" in one:
            peaks[server] = max(peaks.get(server, 0), one["peak_kib"])
        else:
            key = (one["operation"], one["connections"], server)
            rates.setdefault(key, []).append(one)
    unknown = {operation for operation, _, _ in rates} - {row[0] for row in OPERATIONS}
    if unknown:
        raise SystemExit(f"error: operations without a row in the table: {sorted(unknown)}")
    return rates, peaks


def make_rows(rates):
    """The table's rows as objects."""
    connections = sorted({count for _, count, _ in rates})
    for name, title, unit, reach, good in OPERATIONS:
        for count in connections:
            row = {"part": "protocol", "operation": name, "title": title}
            row |= {"connections": count, "unit": unit}
            for server in (OURS, YARDSTICK, STOCK):
                found = rates.get((name, count, server))
                row |= summary(server, found or [])
            if not row[OURS] or not row[YARDSTICK]:
                raise SystemExit(f"error: no rate of both servers for {name}, connections: {count}")
            row["ratio"] = row[OURS] / row[YARDSTICK]
            row["cpu_ratio"] = row[f"{YARDSTICK}_cpu_us"] / row[f"{OURS}_cpu_us"]
            row |= {"ratio_to_reach": reach, "good_ratio": good}
            yield row


def summary(server, results):
    """What a row says of one server: nothing where it has no results."""
    if not results:
        return {server: None}
    rates = [one["rate"] for one in results]
    rate = statistics.median(rates)
    return {
        server: rate,
        # How far rounds were apart, as a part of the median.
        f"{server}_spread": (max(rates) - min(rates)) / rate,
        f"{server}_rounds": len(rates),
        # Processor time of the server, in microseconds a unit.
        f"{server}_cpu_us": statistics.median(one["server_us"] for one in results),
    }


def grade(row):
    """How a ratio stands to its targets."""
    if row["ratio"] >= row["good_ratio"]:
        return "good"
    return "reached" if row["ratio"] >= row["ratio_to_reach"] else "below"


def table(rows, peaks):
    """The lines of the table, in Markdown."""
    titles = ["operation", "conns", "unit", OURS, YARDSTICK, STOCK, "cpu", "ratio", "reach", "good", ""]
    lines = [titles]
    for row in rows:
        speeds = [f"{row[s]:,.0f}" if row[s] else "n/a" for s in (OURS, YARDSTICK, STOCK)]
        targets = [f"{row[key]:.1f}" for key in ("ratio_to_reach", "good_ratio")]
        ratios = [f"{row[key]:.2f}" for key in ("cpu_ratio", "ratio")]
        start = [row["title"], str(row["connections"]), row["unit"]]
        lines.append([*start, *speeds, *ratios, *targets, grade(row)])
    memory = [f"{peaks[s] / 1024:,.0f}" if s in peaks else "n/a" for s in (OURS, YARDSTICK, STOCK)]
    lines.append(["peak memory", "", "MiB", *memory, "", "", "", "", ""])
    yield from markdown.table(lines, LEFT)


def report(results):
    """The table's lines, and its rows as objects."""
    rates, peaks = by_operation(results)
    rows = list(make_rows(rates))
    lines = list(table(rows, peaks))
    for server, kib in sorted(peaks.items()):
        rows.append({"part": "protocol", "server": server, "peak_kib": kib})
    return lines, rows
