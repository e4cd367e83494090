//! Moves whose end is not known: the connection breaks in the commit.

use std::process::Command;

use tempfile::tempdir;

use crate::cli::program::{acetate, said};
use crate::support::database::server::any;

/// Ends the connection in the middle of a commit that adds a session.
const CUT: &str = "
    CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON acetate.secret
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut()";

#[test]
fn a_file_whose_move_may_have_happened_is_not_served_until_the_next_push_finds_out() {
    let name = format!("moves_{}", std::process::id());
    let (database, dir) = (any().apart(&name), tempdir().unwrap());
    let (url, other) = (database.url("chat").to_string(), database.url("other").to_string());
    let command = |args: &[&str]| -> Command {
        let mut command = acetate(dir.path(), args);
        command.env("XDG_CACHE_HOME", dir.path());
        command
    };
    let run = |args: &[&str], code: i32| said(&command(args).output().unwrap(), code).1;
    run(&["init", &other], 0);
    run(&["init", "s.db"], 0);
    database.run(CUT);
    let error = run(&["push", "s.db", &url], 2);
    assert!(error.contains("did not say whether it has the session"), "{error}");
    let error = run(&["mkdir", "s.db", "/d"], 2);
    assert!(error.contains("the session was moved to"), "{error}");
    database.run("DROP TRIGGER cut ON acetate.secret");
    run(&["push", "s.db", &url], 0);
    run(&["mkdir", &url, "/d"], 0);
    any().drop_database(&name);
}
