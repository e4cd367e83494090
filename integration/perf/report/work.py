"""The table of real work through a kernel client."""

import statistics

import markdown

TITLE = "Real work through the kernel client"
LEFT = (0, 7)

# Name in the results, title. None may take longer than so many times the yardstick's time, and
# all together no longer.
WORKLOADS = [
    ("untar", "untar of 5,000 files"),
    ("git", "git clone, status twice, commit"),
    ("cp", "cp -r of 5,000 base files"),
    ("find", "find over 40,000 base files"),
    ("grep", "grep -r over them"),
    ("rm", "rm -rf of 28,000 base files"),
    ("cargo", "cargo build of a small crate"),
    ("npm", "npm ci from a local cache"),
]
MOST = 1.2
MOST_TOTAL = 1.0


def report(results):
    """The table's lines, and its rows as objects."""
    rows = [row for row in (make_row(results, *work) for work in WORKLOADS) if row]
    if not rows:
        return [], []
    total = {"part": "work", "what": "total", "title": "total", "at_most": MOST_TOTAL}
    for server in ("acetate", "ganesha"):
        for key in (server, f"{server}_cpu_s"):
            total[key] = sum(row[key] for row in rows)
    rows.append(with_ratios(total))
    lines = [["work", "acetate s", "ganesha s", "cpu s", "cpu", "ratio", "at most", ""]]
    for row in rows:
        cpu = f"{row['acetate_cpu_s']:.2f} / {row['ganesha_cpu_s']:.2f}"
        figures = [f"{row['acetate']:.2f}", f"{row['ganesha']:.2f}", cpu]
        ratios = [f"{row[key]:.2f}" for key in ("cpu_ratio", "ratio")]
        verdict = "reached" if row["ratio"] <= row["at_most"] else "above"
        lines.append([row["title"], *figures, *ratios, f"{row['at_most']:.1f}", verdict])
    return list(markdown.table(lines, LEFT)), rows


def make_row(results, what, title):
    row = {"part": "work", "what": what, "title": title, "at_most": MOST}
    for server in ("acetate", "ganesha"):
        found = [one for one in results if one.get("what") == what and one["server"] == server]
        if not found:
            return None
        times = [one["value"] for one in found]
        row[server] = statistics.median(times)
        row[f"{server}_spread"] = (max(times) - min(times)) / row[server]
        row[f"{server}_rounds"] = len(times)
        # Processor time of the server.
        row[f"{server}_cpu_s"] = statistics.median(one["server_us"] for one in found) / 1e6
        row[f"{server}_calls"] = found[-1]["calls"]
    return with_ratios(row)


def with_ratios(row):
    row["ratio"] = row["acetate"] / row["ganesha"]
    # A build hardly takes any: the clock ticks 100 times a second.
    row["cpu_ratio"] = row["acetate_cpu_s"] / max(row["ganesha_cpu_s"], 0.01)
    return row
