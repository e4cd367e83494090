//! Old replicas of sessions in databases are removed at a start, unless they are all there is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use acetate::delta::postgres::{SessionUrl, find};
use acetate::delta::sqlite::{Host, Session};
use acetate::workspace::old_replicas::remove_old_replicas;
use acetate::workspace::replicas::replica_name;
use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, said};
use crate::support::database::server::{any, apart};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A user's cache directory with replicas.
struct Cache(TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempdir().unwrap())
    }

    fn replicas(&self) -> PathBuf {
        self.0.path().join("acetate")
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = acetate(self.0.path(), args);
        said(&command.env("XDG_CACHE_HOME", self.0.path()).output().unwrap(), 0).0
    }

    /// The replica of a new session, as if it had been used so many days ago.
    fn replica(&self, days: u32) -> (SessionUrl, PathBuf) {
        let url = any().new_url();
        self.run(&["init", &url.to_string()]);
        self.run(&["mkdir", &url.to_string(), "/d"]);
        let row = any().with(|client, runtime| runtime.block_on(find(client, &url)).unwrap());
        let path = self.replicas().join(format!("{}.db", replica_name(&url, &row)));
        assert!(path.is_file());
        age(&path, days);
        (url, path)
    }
}

fn age(path: &Path, days: u32) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - DAY * days).unwrap();
}

/// Runs a statement on the row of a session.
fn change(url: &SessionUrl, sql: &str) {
    let schema = any().schema();
    any().run(&sql.replace("SESSION", &format!("{schema}.session")).replace("NAME", &url.name));
}

#[test]
fn replicas_that_nothing_has_used_go_and_all_others_stay() {
    let cache = Cache::new();
    let (here, _) = cache.replica(0);
    let (_, unused) = cache.replica(31);
    let (moved, moved_away) = cache.replica(0);
    change(&moved, "UPDATE SESSION SET moved_to = 'a file' WHERE name = 'NAME'");
    let (gone, of_gone) = cache.replica(31);
    change(&gone, "DELETE FROM SESSION WHERE name = 'NAME'");

    let (_, young) = cache.replica(29);
    let (newer, is_newer) = cache.replica(99);
    change(&newer, "UPDATE SESSION SET seq = seq - 1 WHERE name = 'NAME'");
    let (other, other_way) = cache.replica(99);
    change(&other, "UPDATE SESSION SET stamp = stamp + 1 WHERE name = 'NAME'");
    let (moved, newer_than_moved) = cache.replica(0);
    change(&moved, "UPDATE SESSION SET seq = seq - 1, moved_to = 'f' WHERE name = 'NAME'");
    let (diverged, is_diverged) = cache.replica(99);
    let sql = "UPDATE SESSION SET seq = seq + 2, stamp = 1, moved_to = 'f' WHERE name = 'NAME'";
    change(&diverged, sql);
    let row =
        format!("(SELECT id FROM {}.session WHERE name = '{}')", any().schema(), diverged.name);
    any().run(&format!("UPDATE {}.change SET stamp = 7 WHERE session = {row}", any().schema()));
    let (gone, just_gone) = cache.replica(29);
    change(&gone, "DELETE FROM SESSION WHERE name = 'NAME'");
    let (_, in_use) = cache.replica(99);
    let _open = Session::open_any(&in_use, &Host::current().unwrap()).unwrap();
    age(&in_use, 99);
    let foreign = cache.replicas().join("notes.db");
    fs::copy(&young, &foreign).unwrap();
    age(&foreign, 99);

    let start = || {
        let dir = cache.replicas();
        apart(|| remove_old_replicas(&dir, &here, any().runtime()))
    };
    assert_eq!(start(), 3);
    let kept = [&young, &is_newer, &other_way, &newer_than_moved, &is_diverged, &just_gone];
    let kept = [&kept[..], &[&in_use, &foreign]].concat();
    assert!(kept.iter().all(|path| path.is_file()), "{kept:?}");
    assert!([&unused, &moved_away, &of_gone].iter().all(|path| !path.exists()));
    let used = is_newer.metadata().unwrap().modified().unwrap();
    assert!(used.elapsed().unwrap() > DAY * 98, "it was only looked at");
    assert_eq!(start(), 0);
}

#[test]
fn a_replica_whose_database_does_not_answer_stays() {
    let cache = Cache::new();
    let (url, path) = cache.replica(31);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let away = url.to_string().replace(&any().address(), "127.0.0.1:1");
    let sql = "UPDATE acetate_meta SET value = ?1 WHERE key = 'replica_of'";
    assert_eq!(conn.execute(sql, [away]).unwrap(), 1);
    drop(conn);
    age(&path, 31);
    apart(|| assert_eq!(remove_old_replicas(&cache.replicas(), &url, any().runtime()), 0));
    assert!(path.is_file());
}

#[test]
fn a_server_removes_them_when_it_starts_and_a_command_uses_its_replica() {
    let cache = Cache::new();
    let (url, used) = cache.replica(31);
    let (_, unused) = cache.replica(31);
    cache.run(&["log", &url.to_string()]);
    let age_of = |path: &Path| path.metadata().unwrap().modified().unwrap().elapsed().unwrap();
    assert!(age_of(&used) < DAY);
    let local = cache.replicas().display().to_string();
    let served = any().new_url().to_string();
    let args = [&served, "--local", &local, "--insecure"];
    let server = Serving::start_as(acetate(cache.0.path(), &["serve"]), 1, &args);
    let deadline = Instant::now() + Duration::from_secs(60);
    while unused.exists() {
        assert!(Instant::now() < deadline, "{unused:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(used.is_file());
    server.signal("TERM");
    assert!(server.end().0.success());
}
