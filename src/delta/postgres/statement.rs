//! The text of statements: tables, and batches of rows.
//!
//! The dialect is what PostgreSQL, CockroachDB and YugabyteDB share;
//! `tests/delta/postgres/dialect.rs` checks every statement.

use std::fmt::Write;

use super::url::SchemaName;
use super::views::create_views;
use crate::delta::sqlite::{ColumnKind, SessionTable, session_tables};

/// The column of a row's id, where no column of the table is one.
const ROW: &str = "row";

/// Parameters of a batch before those of its rows: the session, the epoch, the number and the stamp
/// of the batch, and which rows it has changed.
pub const BATCH_PARAMETERS: usize = 5;

/// The type of a column's values.
fn column_type(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Int => "bigint",
        ColumnKind::Text | ColumnKind::Any => "text",
        ColumnKind::Name | ColumnKind::Blob => "bytea",
    }
}

/// The column with the ids of a table's rows.
fn id_column(table: &SessionTable) -> &str {
    table.key.and_then(|at| table.columns.get(at)).map_or(ROW, |column| column.name.as_str())
}

/// The columns of a table beside the id, quoted, with their types.
fn columns(table: &SessionTable) -> impl Iterator<Item = (String, &'static str)> + '_ {
    let beside = table.columns.iter().enumerate().filter(|(at, _)| table.key != Some(*at));
    beside.map(|(_, column)| (format!("\"{}\"", column.name), column_type(column.kind)))
}

/// Indexes beside the primary keys: table, name and columns.
const INDEXES: [(&str, &str, &str); 3] = [
    // S4 is SQLite's to enforce: exchanging two names would break an immediate UNIQUE.
    ("fs_dentry", "fs_dentry_name", "session, parent_ino, name"),
    ("fs_dentry", "fs_dentry_ino", "session, ino"),
    ("fs_data", "fs_data_chunk", "session, ino, chunk_index"),
];

/// Whether there is a schema of the name `$1` that the role may use.
pub fn has_schema() -> String {
    "SELECT 1 FROM information_schema.schemata WHERE schema_name = $1".to_owned()
}

/// Creates a schema.
pub fn create_schema(schema: &SchemaName) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {schema}")
}

/// The format and the revision of a schema.
pub fn layout(schema: &SchemaName) -> String {
    format!("SELECT format, revision FROM {schema}.layout WHERE id = 1")
}

/// Records the format `$1` and the revision `$2` of a schema, unless it has a later one.
pub fn record_layout(schema: &SchemaName) -> String {
    format!(
        "INSERT INTO {schema}.layout (id, format, revision) VALUES (1, $1, $2) ON CONFLICT (id) DO \
         UPDATE SET format = excluded.format, revision = excluded.revision WHERE layout.revision < \
         excluded.revision"
    )
}

/// The statements that create all tables, indexes and views of a schema, as far as they are
/// missing.
pub fn complete_schema(schema: &SchemaName) -> Vec<String> {
    let mut all = create_tables(schema);
    for (table, name, columns) in INDEXES {
        all.push(format!("CREATE INDEX IF NOT EXISTS {name} ON {schema}.\"{table}\" ({columns})"));
    }
    all.extend(create_views(schema));
    all
}

/// The columns with contents.
const CONTENTS: [&str; 2] = ["data", "content"];

/// The statements that have new contents compressed in a tenth of the time. Only some PostgreSQL
/// can do that; every other server refuses them.
pub fn compress_contents(schema: &SchemaName) -> Vec<String> {
    let columns = session_tables().iter().flat_map(|table| {
        let names = table.columns.iter().map(|column| column.name.as_str());
        names.filter(|name| CONTENTS.contains(name)).map(|name| (table.name.as_str(), name))
    });
    let alter = |(table, column): (&str, &str)| {
        format!("ALTER TABLE {schema}.\"{table}\" ALTER COLUMN \"{column}\" SET COMPRESSION lz4")
    };
    columns.map(alter).collect()
}

fn create_tables(schema: &SchemaName) -> Vec<String> {
    let mut all = vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {schema}.layout (id BIGINT PRIMARY KEY, format BIGINT NOT \
             NULL, revision BIGINT NOT NULL)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {schema}.session (id BIGINT PRIMARY KEY, name TEXT NOT \
             NULL UNIQUE, format BIGINT NOT NULL, incarnation BIGINT NOT NULL, epoch BIGINT NOT \
             NULL, beat BIGINT NOT NULL, seq BIGINT NOT NULL, stamp BIGINT NOT NULL, lease_ms \
             BIGINT NOT NULL, holder TEXT, address TEXT, base_mark TEXT, moved_to TEXT)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {schema}.secret (session BIGINT PRIMARY KEY, handle_key \
             BYTEA NOT NULL)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {schema}.change (session BIGINT NOT NULL, seq BIGINT NOT \
             NULL, stamp BIGINT NOT NULL, changed TEXT NOT NULL, PRIMARY KEY (session, seq))"
        ),
    ];
    for table in session_tables() {
        let id = id_column(table);
        let mut text = format!(
            "CREATE TABLE IF NOT EXISTS {schema}.\"{}\" (session BIGINT NOT NULL, \"{id}\" BIGINT \
             NOT NULL",
            table.name
        );
        for (name, kind) in columns(table) {
            let _ = write!(text, ", {name} {}", kind.to_uppercase());
        }
        let _ = write!(text, ", PRIMARY KEY (session, \"{id}\"))");
        all.push(text);
    }
    all
}

/// What a batch does to one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TouchedTable {
    /// The index of the table in [`session_tables`].
    pub table: usize,
    /// Whether rows are written.
    pub has_rows: bool,
    /// Whether rows are deleted.
    pub has_gone: bool,
}

/// The statement of a batch: it writes and deletes rows if the session has the epoch `$2` and has
/// kept the batches before `$3`, and returns how many sessions that were. `$5` goes into `change`,
/// unless it is NULL. For each table follow arrays: the ids and the columns of rows to write, if
/// there are any; then the ids of rows to delete, if there are any.
pub fn batch(schema: &SchemaName, touched: &[TouchedTable]) -> String {
    let mut text = format!(
        "WITH held AS (UPDATE {schema}.session SET seq = $3::bigint, stamp = $4::bigint, beat = \
         beat + 1 WHERE id = $1 AND epoch = $2::bigint AND seq = $3::bigint - 1 RETURNING 1), c \
         AS (INSERT INTO {schema}.change (session, seq, stamp, changed) SELECT $1, $3::bigint, \
         $4::bigint, $5::text FROM held WHERE $5::text IS NOT NULL)"
    );
    let mut next = BATCH_PARAMETERS;
    let mut parameter = |kind: &str| {
        next += 1;
        format!("${next}::{kind}[]")
    };
    for (at, touched) in touched.iter().enumerate() {
        let Some(table) = session_tables().get(touched.table) else { continue };
        let (name, id) = (&table.name, id_column(table));
        if touched.has_rows {
            let mut names = vec![format!("\"{id}\"")];
            let mut arrays = vec![parameter("bigint")];
            let mut updates = Vec::new();
            for (column, kind) in columns(table) {
                arrays.push(parameter(kind));
                updates.push(format!("{column} = excluded.{column}"));
                names.push(column);
            }
            let (names, arrays) = (names.join(", "), arrays.join(", "));
            let then = match updates.is_empty() {
                true => "NOTHING".to_owned(),
                false => format!("UPDATE SET {}", updates.join(", ")),
            };
            let _ = write!(
                text,
                ", w{at} AS (INSERT INTO {schema}.\"{name}\" (session, {names}) SELECT $1, n.* \
                 FROM held, unnest({arrays}) AS n ON CONFLICT (session, \"{id}\") DO {then})"
            );
        }
        if touched.has_gone {
            let gone = parameter("bigint");
            let _ = write!(
                text,
                ", d{at} AS (DELETE FROM {schema}.\"{name}\" d USING held, unnest({gone}) AS k \
                 WHERE d.session = $1 AND d.\"{id}\" = k)"
            );
        }
    }
    text.push_str(" SELECT count(*) FROM held");
    text
}

/// The statement that reads rows of a table after the id `$2`, in their order, up to `$3` of them.
pub fn read_after(schema: &SchemaName, table: &SessionTable) -> String {
    let id = id_column(table);
    let mut names = vec![format!("\"{id}\"")];
    names.extend(columns(table).map(|(name, _)| name));
    let (names, name) = (names.join(", "), &table.name);
    format!(
        "SELECT {names} FROM {schema}.\"{name}\" WHERE session = $1 AND \"{id}\" > $2 ORDER BY \
         \"{id}\" LIMIT $3"
    )
}

/// The statement that reads the rows of a table with the ids `$2`.
pub fn read_rows(schema: &SchemaName, table: &SessionTable) -> String {
    let id = id_column(table);
    let mut names = vec![format!("\"{id}\"")];
    names.extend(columns(table).map(|(name, _)| name));
    let (names, name) = (names.join(", "), &table.name);
    format!("SELECT {names} FROM {schema}.\"{name}\" WHERE session = $1 AND \"{id}\" = ANY ($2)")
}

/// Which rows the batches of the session `$1` from number `$2` on have changed, in the order of the
/// batches, up to `$3` of them.
pub fn changes_from(schema: &SchemaName) -> String {
    format!(
        "SELECT seq, stamp, changed FROM {schema}.change WHERE session = $1 AND seq >= $2 ORDER BY \
         seq LIMIT $3"
    )
}

/// Forgets which rows the batches of the session `$1` up to number `$2` have changed.
pub fn forget_changes(schema: &SchemaName) -> String {
    format!("DELETE FROM {schema}.change WHERE session = $1 AND seq <= $2")
}

/// The row of the session named `$1`.
pub fn find(schema: &SchemaName) -> String {
    format!(
        "SELECT id, seq, stamp, incarnation, epoch, beat, holder, address, lease_ms, format, \
         base_mark, moved_to FROM {schema}.session WHERE name = $1"
    )
}

/// The incarnation of the session `$1`, the batch that was kept last, whether it was moved, and the
/// stamp of the batch `$2`, if that is known.
pub fn state(schema: &SchemaName) -> String {
    format!(
        "SELECT incarnation, seq, stamp, moved_to IS NOT NULL, (SELECT c.stamp FROM \
         {schema}.change c WHERE c.session = $1 AND c.seq = $2) FROM {schema}.session WHERE id = $1"
    )
}

/// Makes a session without rows: id, name, format, incarnation, term of its lease in milliseconds.
pub fn new_session(schema: &SchemaName) -> String {
    format!(
        "INSERT INTO {schema}.session (id, name, format, incarnation, epoch, beat, seq, stamp, \
         lease_ms) VALUES ($1, $2, $3, $4, 0, 0, 0, 0, $5)"
    )
}

/// Stores the secret of the session `$1`: the key `$2` of its file handles' MAC.
pub fn new_secret(schema: &SchemaName) -> String {
    format!("INSERT INTO {schema}.secret (session, handle_key) VALUES ($1, $2)")
}

/// The key of the file handles' MAC of the session `$1`.
pub fn handle_key(schema: &SchemaName) -> String {
    format!("SELECT handle_key FROM {schema}.secret WHERE session = $1")
}

/// Names, handle keys and ids, as JSON, of the sessions that have one of the names `$1`.
pub fn identities(schema: &SchemaName) -> String {
    format!(
        "SELECT s.name, k.handle_key, m.value FROM unnest($1::text[]) AS n(name) JOIN \
         {schema}.session s ON s.name = n.name JOIN {schema}.secret k ON k.session = s.id JOIN \
         {schema}.acetate_meta m ON m.session = s.id AND m.key = 'session_id' WHERE s.moved_to IS \
         NULL"
    )
}

/// The epoch of the session `$1`, and the number and the stamp of the batch that was kept last.
pub fn last_batch(schema: &SchemaName) -> String {
    format!("SELECT epoch, seq, stamp FROM {schema}.session WHERE id = $1")
}

/// Takes the lease of the session `$1` for the holder `$4` at the address `$5`, if it still has the
/// epoch `$2` and the beat `$3`; returns the new epoch.
pub fn take(schema: &SchemaName) -> String {
    format!(
        "UPDATE {schema}.session SET epoch = epoch + 1, beat = beat + 1, holder = $4, address = $5 \
         WHERE id = $1 AND epoch = $2 AND beat = $3 RETURNING epoch"
    )
}

/// Renews the leases of the sessions `$1` that have the epochs `$2`; returns the ids of these, and
/// the numbers of the batches that were kept last.
pub fn renew(schema: &SchemaName) -> String {
    format!(
        "UPDATE {schema}.session s SET beat = s.beat + 1 FROM unnest($1::bigint[], $2::bigint[]) \
         AS h(id, epoch) WHERE s.id = h.id AND s.epoch = h.epoch RETURNING s.id, s.seq"
    )
}

/// Gives the lease of the session `$1` back, if it has the epoch `$2`.
pub fn release(schema: &SchemaName) -> String {
    format!(
        "UPDATE {schema}.session SET epoch = epoch + 1, holder = NULL, address = NULL WHERE id = \
         $1 AND epoch = $2"
    )
}

/// Records the address `$3` of the session `$1`, and the mark `$4` of its base, if it has the epoch
/// `$2`.
pub fn describe(schema: &SchemaName) -> String {
    format!("UPDATE {schema}.session SET address = $3, base_mark = $4 WHERE id = $1 AND epoch = $2")
}

/// The sessions of a schema, by name, with the bytes of their contents.
pub fn list(schema: &SchemaName) -> String {
    format!(
        "SELECT s.name, s.seq, s.epoch, s.beat, s.holder, s.address, s.lease_ms, (SELECT \
         COALESCE(sum(length(d.data)), 0) FROM {schema}.fs_data d WHERE d.session = s.id)::bigint \
         FROM {schema}.session s WHERE s.moved_to IS NULL ORDER BY s.name"
    )
}

/// Records that the session `$1` was moved to `$3`, if it has the epoch `$2`.
pub fn record_move(schema: &SchemaName) -> String {
    format!("UPDATE {schema}.session SET moved_to = $3 WHERE id = $1 AND epoch = $2")
}

/// The id of the session named `$1`, if it was moved away.
pub fn moved_away(schema: &SchemaName) -> String {
    format!("SELECT id FROM {schema}.session WHERE name = $1 AND moved_to IS NOT NULL")
}

/// Removes all rows of the session `$1`, one statement for each table.
pub fn remove(schema: &SchemaName) -> Vec<String> {
    let of_table = |name: &str| format!("DELETE FROM {schema}.\"{name}\" WHERE session = $1");
    let mut all: Vec<_> = session_tables().iter().map(|table| of_table(&table.name)).collect();
    all.extend(["secret", "change"].map(of_table));
    all.push(format!("DELETE FROM {schema}.session WHERE id = $1"));
    all
}

/// The id in the rows of the session `$1`, as JSON (invariant M1).
pub fn session_id(schema: &SchemaName) -> String {
    format!("SELECT value FROM {schema}.acetate_meta WHERE session = $1 AND key = 'session_id'")
}

/// The row of the key `$2` in the session `$1`.
pub fn key(schema: &SchemaName) -> String {
    format!(
        "SELECT key, value, created_at, updated_at FROM {schema}.kv_store WHERE session = $1 AND \
         key = $2"
    )
}

/// The keys of the session `$1` that begin with `$2`, in no order, with the lengths of their
/// values.
pub fn keys(schema: &SchemaName) -> String {
    format!(
        "SELECT key, octet_length(value)::bigint, created_at, updated_at FROM {schema}.kv_store \
         WHERE session = $1 AND substr(key, 1, length($2::text)) = $2::text"
    )
}

/// Sets the key `$3` of the session `$1` to `$4` at the time `$5`; a new one gets the row `$2`.
/// Returns how many rows that changed: none if the session was moved away, or if another key has
/// the row.
pub fn set_key(schema: &SchemaName) -> String {
    format!(
        "WITH changed AS (UPDATE {schema}.kv_store SET value = $4::text, updated_at = $5::bigint \
         WHERE session = $1::bigint AND key = $3::text AND {0} RETURNING 1), added AS (INSERT INTO \
         {schema}.kv_store (session, {ROW}, key, value, created_at, updated_at) SELECT $1, \
         $2::bigint, $3, $4, $5, $5 WHERE {0} AND NOT EXISTS (SELECT 1 FROM changed) ON CONFLICT \
         (session, {ROW}) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at \
         WHERE kv_store.key = excluded.key RETURNING 1) SELECT (SELECT count(*) FROM changed) + \
         (SELECT count(*) FROM added)",
        is_here(schema)
    )
}

/// Whether the session `$1` was not moved away.
fn is_here(schema: &SchemaName) -> String {
    format!("EXISTS (SELECT 1 FROM {schema}.session s WHERE s.id = $1 AND s.moved_to IS NULL)")
}

/// Removes the key `$2` of the session `$1`; returns its row.
pub fn remove_key(schema: &SchemaName) -> String {
    format!(
        "DELETE FROM {schema}.kv_store WHERE session = $1 AND key = $2 AND {} RETURNING key, \
         value, created_at, updated_at",
        is_here(schema)
    )
}

/// The last row of the audit log of the session `$1`; 0 if there is none.
pub fn last_op(schema: &SchemaName) -> String {
    format!("SELECT COALESCE(max(id), 0) FROM {schema}.acetate_op WHERE session = $1")
}

/// Records a tool call of the session `$1`, with the next number, which it returns; nothing if the
/// session was moved away. Then name, parameters, result, error, status, beginning, end and
/// duration; and, if `$11`, where its rows of the audit log begin (`$10`) and the checkpoint before
/// it (`$12`).
pub fn record_call(schema: &SchemaName) -> String {
    format!(
        "WITH made AS (INSERT INTO {schema}.tool_calls (session, id, name, parameters, result, \
         error, status, started_at, completed_at, duration_ms) SELECT $1::bigint, (SELECT \
         COALESCE(max(id), 0) + 1 FROM {schema}.tool_calls WHERE session = $1), $2::bytea, \
         $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint WHERE {} \
         RETURNING id), bounds AS (INSERT INTO {schema}.acetate_tool_call (session, call, \
         begin_op, end_op, checkpoint) SELECT $1, made.id, GREATEST($10::bigint, (SELECT \
         COALESCE(max(c.last_op), 0) FROM {schema}.acetate_checkpoint c WHERE c.session = $1 AND \
         c.id = $12::bigint)), (SELECT COALESCE(max(o.id), 0) FROM {schema}.acetate_op o WHERE \
         o.session = $1), $12 FROM made WHERE $11::boolean ON CONFLICT (session, call) DO UPDATE \
         SET begin_op = excluded.begin_op, end_op = excluded.end_op, checkpoint = \
         excluded.checkpoint) SELECT id FROM made",
        is_here(schema)
    )
}

/// The outcome of a call: the column `status`, or else derived from result and error.
pub(super) const CALL_STATUS: &str = "CASE WHEN t.status IN ('success', 'error') THEN t.status \
    WHEN t.error IS NOT NULL THEN 'error' WHEN t.result IS NOT NULL THEN 'success' WHEN t.status = \
    'pending' OR t.completed_at IS NULL THEN 'pending' ELSE 'success' END";

/// What is selected of a call, beside its texts.
const CALL_COLUMNS: &str =
    "t.id, t.name, t.started_at, t.completed_at, t.duration_ms, b.begin_op, b.end_op, b.checkpoint";

/// The tables of calls with their bounds.
fn calls_with_bounds(schema: &SchemaName) -> String {
    format!(
        "{schema}.tool_calls t LEFT JOIN {schema}.acetate_tool_call b ON b.session = t.session AND \
         b.call = t.id"
    )
}

/// The tool calls of the session `$1`, the last first: of the tool `$2`, that began from `$3` to
/// `$4`, with the status `$5` (each unless it is NULL), up to `$6` of them.
pub fn calls(schema: &SchemaName) -> String {
    format!(
        "SELECT {CALL_COLUMNS}, {CALL_STATUS} FROM {} WHERE t.session = $1 AND ($2::bytea IS NULL \
         OR t.name = $2) AND ($3::bigint IS NULL OR t.started_at >= $3) AND ($4::bigint IS NULL OR \
         t.started_at <= $4) AND ($5::text IS NULL OR {CALL_STATUS} = $5) ORDER BY t.id DESC LIMIT \
         $6::bigint",
        calls_with_bounds(schema)
    )
}

/// The tool call `$2` of the session `$1`, with its texts.
pub fn call(schema: &SchemaName) -> String {
    format!(
        "SELECT {CALL_COLUMNS}, {CALL_STATUS}, t.parameters, t.result, t.error FROM {} WHERE \
         t.session = $1 AND t.id = $2",
        calls_with_bounds(schema)
    )
}

/// For each tool of the session `$1`, the most frequent first: its name, how many calls it has,
/// failed ones and those without an outcome among them, and the sum, mean and maximum of their
/// durations.
pub fn call_stats(schema: &SchemaName) -> String {
    let count = |status: &str| {
        format!("sum(CASE WHEN {CALL_STATUS} = '{status}' THEN 1 ELSE 0 END)::bigint")
    };
    format!(
        "SELECT t.name, count(*), {}, {}, COALESCE(sum(t.duration_ms), 0)::bigint, \
         avg(t.duration_ms)::double precision, max(t.duration_ms) FROM {schema}.tool_calls t WHERE \
         t.session = $1 GROUP BY t.name ORDER BY 2 DESC, 1",
        count("error"),
        count("pending")
    )
}
