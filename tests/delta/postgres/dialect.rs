//! Every statement is of the dialect that PostgreSQL, CockroachDB and YugabyteDB share.

use acetate::delta::postgres::statement::{self, TouchedTable};
use acetate::delta::sqlite::session_tables;
use regex::RegexBuilder;

use crate::support::database::server::any;

/// What none of the statements may use.
const FORBIDDEN: &[&str] = &[
    r"\bREFERENCES\b",
    r"\bFOREIGN\s+KEY\b",
    r"\bTRIGGER\b",
    r"\bSEQUENCE\b",
    r"\b(BIG|SMALL)?SERIAL\b",
    r"\bGENERATED\b",
    r"\bnextval\b",
    r"\bpg_\w+",
    r"\bLOCK\b",
    r"\bFOR\s+(UPDATE|SHARE|NO\s+KEY|KEY)\b",
    r"\bLISTEN\b",
    r"\bNOTIFY\b",
    r"\bCOPY\b",
    r"\bDEFERR",
    r"\bEXCLUDE\s",
    r"\bLANGUAGE\b",
    r"\bFUNCTION\b",
    r"\bPROCEDURE\b",
    r"\$\$",
    r"\bDO\s+\$",
    r"\bON\s+CONFLICT\s+DO\b",
    r"\bON\s+CONSTRAINT\b",
    r"\bON\s+CONFLICT\b.*\bON\s+CONFLICT\b",
    r"\bMERGE\b",
    r"\bctid\b",
    r"\bxmin\b",
    r"\bTEMP(ORARY)?\b",
    r"\bUNLOGGED\b",
    r"\bINHERITS\b",
    r"\bUSING\s+(gin|gist|brin|hash)\b",
];

/// What `text` uses that it may not.
fn forbidden(text: &str) -> Vec<&'static str> {
    // Names in quotes may be any.
    let names = RegexBuilder::new(r#""[^"]*""#).build().unwrap();
    let text = names.replace_all(text, "name");
    let uses = |pattern: &&&str| {
        // Each part of a batch may have one target.
        text.split(", w").any(|part| {
            let regex = RegexBuilder::new(pattern).case_insensitive(true).build().unwrap();
            regex.is_match(part)
        })
    };
    FORBIDDEN.iter().filter(uses).copied().collect()
}

/// Every statement that creates, and every other one.
fn statements() -> (Vec<String>, Vec<String>) {
    let url = any().url("none");
    let schema = &url.schema;
    let mut all = vec![
        statement::has_schema(),
        statement::layout(schema),
        statement::record_layout(schema),
        statement::find(schema),
        statement::state(schema),
        statement::new_session(schema),
        statement::new_secret(schema),
        statement::handle_key(schema),
        statement::last_batch(schema),
        statement::take(schema),
        statement::renew(schema),
        statement::release(schema),
        statement::describe(schema),
        statement::list(schema),
        statement::record_move(schema),
        statement::moved_away(schema),
        statement::session_id(schema),
        statement::identities(schema),
        statement::key(schema),
        statement::keys(schema),
        statement::set_key(schema),
        statement::remove_key(schema),
        statement::last_op(schema),
        statement::record_call(schema),
        statement::calls(schema),
        statement::call(schema),
        statement::call_stats(schema),
        statement::batch(schema, &[]),
        statement::changes_from(schema),
        statement::forget_changes(schema),
    ];
    all.extend(statement::remove(schema));
    let mut touched = Vec::new();
    for (table, described) in session_tables().iter().enumerate() {
        all.push(statement::read_after(schema, described));
        all.push(statement::read_rows(schema, described));
        for (has_rows, has_gone) in [(true, false), (false, true), (true, true)] {
            all.push(statement::batch(schema, &[TouchedTable { table, has_rows, has_gone }]));
        }
        touched.push(TouchedTable { table, has_rows: true, has_gone: true });
    }
    all.push(statement::batch(schema, &touched));
    let mut creating = vec![statement::create_schema(schema)];
    creating.extend(statement::complete_schema(schema));
    (creating, all)
}

#[test]
fn no_statement_uses_what_only_postgresql_has() {
    let (creating, all) = statements();
    for text in creating.iter().chain(&all) {
        assert_eq!(forbidden(text), [""; 0], "{text}");
    }
    assert!(creating.len() > session_tables().len());
}

#[test]
fn what_is_forbidden_is_seen() {
    for bad in [
        "CREATE TABLE a (b BIGINT REFERENCES c (d))",
        "CREATE TRIGGER t BEFORE INSERT ON a EXECUTE FUNCTION f()",
        "CREATE TABLE a (b BIGSERIAL)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_export_snapshot()",
        "LISTEN changes",
        "COPY a TO STDOUT (FORMAT BINARY)",
        "CREATE TABLE a (b BIGINT UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        "DO $$ BEGIN END $$",
        "INSERT INTO a VALUES (1) ON CONFLICT DO NOTHING",
        "INSERT INTO a VALUES (1) ON CONFLICT (b) DO NOTHING ON CONFLICT (c) DO NOTHING",
        "SELECT 1 FROM a FOR UPDATE",
    ] {
        assert!(!forbidden(bad).is_empty(), "{bad}");
    }
}

#[test]
fn a_real_postgresql_prepares_every_statement() {
    let (creating, all) = statements();
    // The tables are there: each statement is for one that is missing, too.
    creating.iter().for_each(|text| any().run(text));
    any().with(|client, runtime| {
        for text in &all {
            if let Err(error) = runtime.block_on(client.prepare(text)) {
                panic!("{error:?}: {text}");
            }
        }
    });
}
