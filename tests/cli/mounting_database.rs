//! `mount`, `umount` and `run` of sessions in a database, up to the system's own mounting, which a
//! program of ours stands in for. With a kernel's client: integration/kernel.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::mounting::Place;
use super::program::{Serving, said};
use super::unmounting::feigned;
use crate::support::database::server::any;

/// What a command of a feigned run does at last: its mount is gone.
const UNMOUNT: &str = "umount -l $PWD; umount /proc/$PPID/mountinfo";

/// What a command printed on stdout and stderr; it succeeded, and no path of a replica is in it.
#[track_caller]
fn told(output: &Output, code: i32) -> (String, String) {
    let (out, error) = said(output, code);
    assert!(!out.contains("/cache/") && !error.contains("/cache/"), "{out}{error}");
    (out, error)
}

/// The server's entry in the database.
fn listed(place: &Place, url: &str) -> Value {
    let (start, name) = url.split_once("/postgres/").unwrap();
    let (name, schema) = name.split_once('?').unwrap();
    let (lines, _) =
        said(&place.run(&["sessions", "--json", &format!("{start}/postgres?{schema}")]), 0);
    let mut all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.find(|session| session["session"] == name).unwrap()
}

/// The logs of servers beside their replicas.
fn logs(place: &Place) -> Vec<PathBuf> {
    let files = fs::read_dir(place.path("cache/acetate")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|it| it == "log")).collect()
}

fn assert_nothing_is_mounted(place: &Place, url: &str) {
    assert_eq!(listed(place, url)["holder"], Value::Null, "the lease was given back");
    assert_eq!(logs(place), [""; 0].map(PathBuf::from));
    for name in ["run", "tmp"] {
        assert_eq!(fs::read_dir(place.path(name)).unwrap().count(), 0, "{name}");
    }
}

/// A mount of a new session at `at`, and the number of its server.
fn mounted(url: &str, more: &[&str]) -> Option<(Place, u64)> {
    let args = [&["mount", url, "at", "--base", "base", "--json"], more].concat();
    let (place, mut command) = feigned(&args)?;
    let (out, error) = told(&command.output().unwrap(), 0);
    assert!(error.contains(&format!("created {url}\n")), "{error}");
    let mount: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(mount["session"], url, "{mount}");
    Some((place, mount["server"].as_u64().unwrap()))
}

#[test]
fn a_mount_has_the_lease_until_it_is_unmounted() {
    let url = any().new_url().to_string();
    let Some((place, server)) = mounted(&url, &[]) else { return };
    let holder = listed(&place, &url);
    assert!(holder["holder"].as_str().unwrap().ends_with(&format!("process {server}")), "{holder}");
    assert!(holder["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{holder}");
    told(&place.run(&["mkdir", &url, "/dir"]), 0);
    let (out, _) = told(&place.run(&["sessions"]), 0);
    assert!(out.starts_with(&url), "{out}");
    let (out, _) = told(&place.run(&["umount", "at"]), 0);
    assert!(out.contains("at is unmounted; its server has ended\n"), "{out}");
    assert!(out.ends_with(&format!("{url}: 1 added\n")), "{out}");
    assert_nothing_is_mounted(&place, &url);
    assert_eq!(told(&place.run(&["ls", &url]), 0).0, "dir\n");
}

#[test]
fn a_mount_is_of_the_server_that_is_there_or_says_where_it_is() {
    let url = any().new_url().to_string();
    let Some((place, mut command)) = feigned(&["mount", &url, "at"]) else { return };
    let args = [url.as_str(), "--local", "served", "--insecure", "--base", "base"];
    let server = Serving::start_as(place.command(&["serve"]), 1, &args);
    let (out, _) = told(&command.output().unwrap(), 0);
    assert!(out.contains(&format!("{url} is mounted at")), "{out}");
    assert!(out.contains(&server.addresses[0].to_string()), "{out}");
    let (out, _) = told(&place.run(&["umount", "at"]), 0);
    assert!(out.contains("continues: it was there before the mount"), "{out}");
    // Without the registry of this user's servers, it is as if it were elsewhere.
    for args in [&["mount", &url, "at"][..], &["run", &url, "--at", "at", "--", "true"]] {
        let far = place.command(args).env("XDG_RUNTIME_DIR", place.path("tmp")).output().unwrap();
        let (_, error) = told(&far, 2);
        assert!(error.contains("the session is served by") && error.contains("hint: "), "{error}");
        fs::remove_dir_all(place.path("tmp/acetate")).unwrap();
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_nothing_is_mounted(&place, &url);
}

#[test]
fn the_server_of_a_mount_that_loses_the_session_ends_and_its_log_says_so() {
    let url = any().new_url().to_string();
    let Some((place, pid)) = mounted(&url, &["--lease", "1"]) else { return };
    let signal = |name: &str| {
        let pid = pid.to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    };
    signal("STOP");
    let args = [url.as_str(), "--local", "second", "--standby", "--base", "base"];
    let second = Serving::start_as(place.command(&["serve"]), 1, &args);
    signal("CONT");
    let begun = Instant::now();
    let is_there = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while is_there() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = fs::read_to_string(&logs(&place)[0]).unwrap();
    assert!(log.contains("error: lost the session: another server has taken"), "{log}");
    let (out, _) = told(&place.run(&["umount", "at"]), 0);
    assert!(out.contains("at is unmounted"), "{out}");
    assert!(listed(&place, &url)["holder"].is_string(), "the other one goes on");
    drop(second);
}

#[test]
fn a_run_has_the_session_for_its_time() {
    let acetate = env!("CARGO_BIN_EXE_acetate");
    let line = format!("{acetate} mkdir $ACETATE_SESSION /dir; {UNMOUNT}; exit 7");
    let url = any().url("runs/s").to_string();
    let args = ["run", &url, "--no-base", "--report", "report", "--", "sh", "-c", &line];
    let Some((place, mut command)) = feigned(&args) else { return };
    let (_, error) = told(&command.output().unwrap(), 7);
    assert!(error.contains(&format!("created {url}\n")), "{error}");
    assert!(error.contains("A /dir/\nthis run: 1 added\n"), "{error}");
    assert!(error.contains(&format!("{url} holds in all: 1 added\n")), "{error}");
    assert!(error.contains(&format!("acetate diff '{url}'\n")), "{error}");
    let report: Value = serde_json::from_slice(&fs::read(place.path("report")).unwrap()).unwrap();
    assert_eq!(report["session"], url, "{report}");
    assert_nothing_is_mounted(&place, &url);

    // In a run of a run, too, the session is known by what the command gets.
    let inner = format!("{acetate} run $ACETATE_SESSION -- sh -c '{UNMOUNT}'");
    let args = ["run", &url, "--", "sh", "-c", &format!("{inner}; {UNMOUNT}")];
    let mut command = place.command_by(&["unshare", "--mount"], &args);
    let (_, error) = told(&command.output().unwrap(), 0);
    assert!(error.contains("this run changed nothing\n"), "{error}");
    assert_nothing_is_mounted(&place, &url);
}

#[test]
fn what_a_mount_cannot_be_is_said_before_a_session_is_made() {
    let Some(place) = Place::new("exit 1") else { return };
    let url = any().new_url().to_string();
    let error = place.failure(&["run", &url, "--", "true"]);
    assert!(error.contains(&format!("{url}: there is no such session")), "{error}");
    let error = place.failure(&["mount", &url, "nowhere"]);
    assert!(error.contains("nowhere: No such file"), "{error}");
    let error = place.failure(&["mount", &url, "at", "--existing"]);
    assert!(error.contains("there is no session"), "{error}");
    let error = place.failure(&["mount", "s.db", "at", "--lease", "9"]);
    assert!(error.contains("--local and --lease are for sessions in a database"), "{error}");
    let (_, error) = said(&place.run(&["diff", &url]), 2);
    assert!(error.contains("there is no session"), "{error}");
    // One that cannot be mounted is there, and no server has it.
    let error = place.failure(&["mount", &url, "at", "--base", "base", "--read-only"]);
    assert!(error.contains("mount failed"), "{error}");
    assert_nothing_is_mounted(&place, &url);
}
