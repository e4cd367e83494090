"""Tables in Markdown, in columns."""


def table(lines, left):
    """The lines of a table whose first line is the titles; columns in `left` are words."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for at, line in enumerate(lines):
        pad = [
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths))
        ]
        yield f"| {' | '.join(pad)} |"
        if at == 0:
            rules = [
                "-" * width if column in left else "-" * (width - 1) + ":"
                for column, width in enumerate(widths)
            ]
            yield f"| {' | '.join(rules)} |"
