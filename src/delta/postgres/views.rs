//! Views for people: names and paths as text, times as timestamps, sessions by their names.
//!
//! A view only ever gets more columns, at its end, as `CREATE OR REPLACE VIEW` demands; so it keeps
//! who may read it.

use super::statement::CALL_STATUS;
use super::url::SchemaName;

/// Hexadecimal digits of bytes that are UTF-8 without NUL.
const UTF8: &str = "^([1-7][0-9a-f]|0[1-9a-f]|(c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|\
    e0[ab][0-9a-f][89ab][0-9a-f]|e[1-9abcef]([89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|\
    f0[9ab][0-9a-f]([89ab][0-9a-f]){2}|f[1-3]([89ab][0-9a-f]){3}|f48[0-9a-f]([89ab][0-9a-f]){2})*$";

/// The first and the last second of the years 1 to 9999, which programs can show.
const YEARS: (i64, i64) = (-62_135_596_800, 253_402_300_799);

/// Bytes as text; with `\` and octal digits for bytes if they are no UTF-8.
fn text(bytes: &str) -> String {
    format!(
        "CASE WHEN encode({bytes}, 'hex') ~ '{UTF8}' THEN convert_from({bytes}, 'UTF8') ELSE \
         encode({bytes}, 'escape') END"
    )
}

/// A time from seconds since 1970; NULL outside of [`YEARS`].
fn time(seconds: &str) -> String {
    let (first, last) = YEARS;
    format!(
        "CASE WHEN {seconds} BETWEEN {first} AND {last} THEN TIMESTAMPTZ '1970-01-01 00:00:00+00' \
         + {seconds} * INTERVAL '1 second' END"
    )
}

/// A time from seconds and nanoseconds, to the microsecond.
fn precise(seconds: &str) -> String {
    format!("{} + {seconds}_nsec / 1000 * INTERVAL '1 microsecond'", time(seconds))
}

/// The type of an object by its mode.
const TYPE: &str = "CASE i.mode & 61440 WHEN 16384 THEN 'directory' WHEN 32768 THEN 'file' WHEN \
    40960 THEN 'symlink' ELSE 'special' END";

/// Each name of each object, with its path.
fn files(schema: &SchemaName) -> String {
    let (name, target) = (text("d.name"), text("l.target"));
    let (mtime, ctime) = (precise("i.mtime"), precise("i.ctime"));
    // As a text that was converted, too: PostgreSQL wants one collation.
    let root = "convert_from(CAST('' AS BYTEA), 'UTF8')";
    format!(
        "CREATE OR REPLACE VIEW {schema}.files AS WITH RECURSIVE tree (session, ino, path) AS \
         (SELECT s.id, CAST(1 AS BIGINT), {root} FROM {schema}.session s WHERE \
         s.moved_to IS NULL UNION ALL SELECT d.session, d.ino, t.path || '/' || {name} FROM tree t \
         JOIN {schema}.fs_dentry d ON d.session = t.session AND d.parent_ino = t.ino) \
         SELECT s.name AS session, t.path, {TYPE} AS type, i.size, i.mode & 4095 AS mode, i.uid, \
         i.gid, i.nlink, {mtime} AS mtime, {ctime} AS ctime, {target} AS target, t.ino, \
         t.session AS session_number FROM tree t JOIN {schema}.session s ON s.id = t.session JOIN \
         {schema}.fs_inode i ON i.session = t.session AND i.ino = t.ino LEFT JOIN \
         {schema}.fs_symlink l ON l.session = t.session AND l.ino = t.ino WHERE t.path <> ''"
    )
}

/// A view of rows of `table` (`r`) with the columns `columns`, and the session's name and number
/// around them.
fn view(schema: &SchemaName, name: &str, (table, columns): (&str, &str)) -> String {
    format!(
        "CREATE OR REPLACE VIEW {schema}.{name} AS SELECT s.name AS session, {columns}, r.session \
         AS session_number FROM {schema}.{table} r JOIN {schema}.session s ON s.id = r.session \
         WHERE s.moved_to IS NULL"
    )
}

/// The audit log.
fn changes(schema: &SchemaName) -> String {
    let (time, path, path2) = (precise("r.time"), text("r.path"), text("r.path2"));
    let columns = format!(
        "r.id, {time} AS time, r.\"procedure\", {path} AS path, {path2} AS path2, r.uid, r.gid, \
         r.client, r.fileid, r.\"offset\", r.length, r.export, r.note"
    );
    view(schema, "changes", ("acetate_op", &columns))
}

/// The statements that create all views, or bring them up to date.
pub(super) fn create_views(schema: &SchemaName) -> Vec<String> {
    let base_path = text("r.base_path");
    let deleted = format!("{} AS path, {} AS since", text("r.path"), time("r.created_at"));
    let copied = format!(
        "{base_path} AS base_path, r.size AS size_before, {} AS mtime_before, r.delta_ino AS ino",
        precise("r.mtime")
    );
    let renamed = format!("{base_path} AS base_path, r.delta_ino AS ino");
    let checkpoints =
        format!("r.id, r.name, r.kind, {} AS time, r.saved_bytes, r.last_op", precise("r.time"));
    let calls = format!(
        "r.id, {} AS name, {} AS status, {} AS started, {} AS completed, r.duration_ms, \
         r.parameters, r.result, r.error",
        text("r.name"),
        CALL_STATUS.replace("t.", "r."),
        time("r.started_at"),
        time("r.completed_at")
    );
    vec![
        files(schema),
        changes(schema),
        view(schema, "base_deleted", ("fs_whiteout", &deleted)),
        view(schema, "base_copied", ("acetate_origin", &copied)),
        view(schema, "base_renamed", ("acetate_redirect", &renamed)),
        view(schema, "checkpoints", ("acetate_checkpoint", &checkpoints)),
        view(schema, "calls", ("tool_calls", &calls)),
    ]
}
