"""Compares every row of a session in the database with those of a replica.

Written from docs/SCHEMA.md and the tables alone: it shares nothing with the server's code.
"""

import json
import re
import sqlite3

# Of a file, and not of the session.
OF_FILE = {
    "acetate_meta": {
        "clean", "boot_id", "boot_epoch", "syncs", "last_dentry", "late_op", "tree_sum",
        "replica_of", "replica_seq", "replica_stamp", "moved_to", "handle_key",
    },
    "sqlite_sequence": {"kv_store", "tool_calls", "acetate_tool_call"},
}
OUTSIDE = {"kv_store", "tool_calls", "acetate_tool_call"}
# Kept in the database as JSON, because they hold numbers and words.
ANY = {("acetate_meta", "value")}
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}


def unescaped(cell, kind):
    """A value of COPY's text format."""
    if cell == r"\N":
        return None
    cell = re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), cell)
    if kind == "bytea":
        return bytes.fromhex(cell[2:])
    return int(cell) if kind == "bigint" else cell.encode()


def of_database(database, schema, table, session):
    """{row: {column: value}} of a table."""
    where = f"table_schema = '{schema}' AND table_name = '{table}'"
    described = database.sql(
        "SELECT column_name || ' ' || data_type FROM information_schema.columns WHERE "
        f"{where} ORDER BY ordinal_position"
    )
    columns = [line.split(" ", 1) for line in described.splitlines()][1:]
    names = ", ".join(f'"{name}"' for name, _ in columns)
    text = database.sql(
        f'COPY (SELECT {names} FROM {schema}."{table}" WHERE session = {session}) TO STDOUT'
    )
    rows = {}
    for line in text.split("\n") if text else []:
        cells = [
            unescaped(cell, kind) for cell, (_, kind) in zip(line.split("\t"), columns, strict=True)
        ]
        values = dict(zip((name for name, _ in columns), cells))
        row = cells[0]
        values.pop("row", None)
        for name in [name for name in values if (table, name) in ANY]:
            value = json.loads(values[name])
            values[name] = value.encode() if isinstance(value, str) else value
        rows[row] = values
    return rows


def of_replica(connection, table):
    """The same of a replica, without the rows of the file alone."""
    cursor = connection.execute(f'SELECT rowid AS "the row", * FROM "{table}"')
    names = [column[0] for column in cursor.description][1:]
    own = {key.encode() for key in OF_FILE.get(table, ())}
    rows = {row: dict(zip(names, cells, strict=True)) for row, *cells in cursor}
    return {row: values for row, values in rows.items() if values[names[0]] not in own}


def compare(database, schema, name, file):
    """Fails with the first differences; returns how many rows were compared."""
    session = database.sql(f"SELECT id FROM {schema}.session WHERE name = '{name}'")
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    # Names need not be text.
    connection.text_factory = bytes
    tables = database.sql(
        f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1"
    ).split("\n")
    local = {
        name.decode()
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    missing = local - set(tables) - OUTSIDE
    assert not missing, f"the database lacks the tables {missing}"
    count = 0
    for table in tables:
        if table in ("session", "secret", "change", "layout"):
            continue
        theirs = of_database(database, schema, table, session)
        ours = of_replica(connection, table) if table in local else {}
        count += len(theirs)
        if ours != theirs:
            differ = [
                f"  row {row}: replica {ours.get(row)}\n    database {theirs.get(row)}"
                for row in sorted(set(ours) | set(theirs))
                if ours.get(row) != theirs.get(row)
            ]
            raise AssertionError(
                f"{table} of {file}: {len(differ)} rows differ\n" + "\n".join(differ[:3])
            )
    connection.close()
    return count
