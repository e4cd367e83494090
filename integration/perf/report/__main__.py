"""Prints the tables of a benchmark's results, in Markdown.

Usage: python3 report [--check] RESULTS [JSON]: RESULTS holds one JSON object a line, as the parts
print them; JSON gets the tables' rows in the same form. With --check, a bound of memory or of size
that is not kept is a failure: these hardly depend on the machine, as times do.
"""

import json
import sys

import bounds
import postgres
import protocol
import scale
import work


def main():
    arguments = [one for one in sys.argv[1:] if one != "--check"]
    with open(arguments[0], encoding="utf-8") as lines:
        results = [json.loads(line) for line in lines]
    rows = []
    parts = (protocol, "protocol"), (postgres, "postgres"), (work, "work"), (scale, "scale")
    for module, part in (*parts, (bounds, None)):
        of_part = [one for one in results if part in (None, one["part"])]
        lines, found = module.report(of_part) if of_part else ([], [])
        rows += found
        if lines:
            print(f"\n{module.TITLE}:\n")
            print("\n".join(lines))
    if len(arguments) > 1:
        with open(arguments[1], "w", encoding="utf-8") as out:
            for row in rows:
                print(json.dumps(row), file=out)
    missed = [f"{row['what']}: {row['value']:.2f} {row['unit']}" for row in bounds.missed(rows)]
    if "--check" in sys.argv and missed:
        sys.exit(f"error: above what it may be: {'; '.join(missed)}")


main()
