"""Prints the tables of a benchmark's results, in Markdown.

Usage: python3 report RESULTS [JSON]: RESULTS holds one JSON object a line, as the parts print
them; JSON gets the tables' rows in the same form.
"""

import json
import sys

import bounds
import protocol
import scale
import work


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        results = [json.loads(line) for line in lines]
    rows = []
    for module, part in ((protocol, "protocol"), (work, "work"), (scale, "scale"), (bounds, None)):
        of_part = [one for one in results if part in (None, one["part"])]
        lines, found = module.report(of_part) if of_part else ([], [])
        rows += found
        if lines:
            print(f"\n{module.TITLE}:\n")
            print("\n".join(lines))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            for row in rows:
                print(json.dumps(row), file=out)


main()
