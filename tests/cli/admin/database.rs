//! What a server shows of a session in a database.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::cli::program::{Serving, acetate, said};
use crate::support::database::server::any;
use crate::support::http::{Scraped, get};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The figures, once they are as wanted.
#[track_caller]
fn wait_for(admin: std::net::SocketAddr, is_it: impl Fn(&Scraped) -> bool) -> Scraped {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = Scraped::of(admin);
        if is_it(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{:?}", found.0);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn leases_commits_and_fetches_are_shown_and_a_database_that_is_silent() {
    let name = format!("figures_{}", std::process::id());
    let (database, dir) = (any().apart(&name), tempdir().unwrap());
    let url = database.url("chat").to_string();
    let command = |args: &[&str]| {
        let mut command = acetate(dir.path(), args);
        command.env("XDG_CACHE_HOME", dir.path());
        command
    };
    let args = [&url, "--local", "local", "--admin", "127.0.0.1:0", "--insecure"];
    let server = Serving::start_as(command(&["serve"]), 1, &args);
    let lines = server.said.join("\n");
    let admin = lines.split("figures at http://").nth(1).unwrap().split('/').next().unwrap();
    let admin = admin.parse().unwrap();
    said(&command(&["mkdir", &url, "/d"]).output().unwrap(), 0);
    let first = Scraped::of(admin);
    let expected = [("leases", 1.0), ("leases_invalid", 0.0), ("lease_epoch", 1.0)];
    for (name, value) in expected {
        assert_eq!(first.value(&format!("acetate_{name}")), value, "{name}");
    }
    let commits = "acetate_database_commit_duration_seconds_count";
    assert!(first.value(commits) >= 1.0, "{:?}", first.0);
    assert!(first.value("acetate_database_commit_duration_seconds_sum") > 0.0);
    assert!(first.value("acetate_hydration_seconds") > 0.0);
    assert!(first.value("acetate_lease_silence_seconds") < 2.0);
    // As long as this lock, the database changes nothing of the session.
    let transaction = Instant::now();
    database.run("BEGIN; LOCK TABLE acetate.session IN EXCLUSIVE MODE");
    let mut waiting = command(&["mkdir", &url, "/e"]).stderr(Stdio::null()).spawn().unwrap();
    let silent = wait_for(admin, |figures| figures.value("acetate_leases_invalid") == 1.0);
    assert!(silent.value("acetate_lease_silence_seconds") > 2.0);
    assert_eq!(get(admin, "/readyz").status, 503);
    // A statement is given up after the term of the lease.
    std::thread::sleep(Duration::from_secs(4).saturating_sub(transaction.elapsed()));
    database.run("ROLLBACK");
    let again = wait_for(admin, |figures| {
        figures.value("acetate_leases_invalid") == 0.0
            && figures.value(commits) > first.value(commits)
    });
    assert!(again.value("acetate_lease_renewals_failed_total") >= 1.0, "{:?}", again.0);
    assert!(again.value("acetate_database_doubts_total") >= 1.0, "{:?}", again.0);
    assert_eq!(again.value("acetate_leases"), 1.0);
    assert_eq!(again.value("acetate_leases_lost_total"), 0.0);
    assert!(waiting.wait().unwrap().success());
    server.signal("TERM");
    assert!(server.end().0.success());
    any().drop_database(&name);
}
