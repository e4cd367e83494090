//! Session files as a whole.

use std::fs;

use acetate::delta::sqlite::InstanceRegistry;
use acetate::workspace::exports::registry_file;
use serde_json::Value;
use tempfile::tempdir;

use super::Seen;
use super::looks::changed;
use crate::delta::{FOREIGN, Place};
use crate::inspect::half_empty;
use crate::support::database::server::any;
use crate::support::spec_versions;

pub(super) fn run(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    let made = seen.run(dir, 0, &["init", "new.db", "--base", "base"]).remove(0);
    let base = dir.canonicalize().unwrap().join("base");
    assert_eq!(made["base"], base.to_str().unwrap(), "{made}");
    assert_eq!(seen.run(dir, 0, &["init", "empty.db"])[0]["base"], Value::Null);
    seen.run(dir, 0, &["snapshot", "s.db", "copy.db"]);
    let compacted = seen.run(dir, 0, &["compact", "copy.db"]).remove(0);
    let size = fs::metadata(dir.join("copy.db")).unwrap().len();
    assert_eq!(
        (&compacted["after_bytes"], &compacted["is_delayed"]),
        (&size.into(), &false.into())
    );
    seen.run(dir, 0, &["check", "s.db"]);
    seen.run(dir, 0, &["log", "limit", "s.db", "5000"]);
    seen.run(dir, 1, &["log", "prune", "s.db", "--keep", "1", "--dry-run"]);
    seen.run(dir, 0, &["export", "s.db", "--dir", "out"]);
    seen.run(dir, 0, &["seal", "s.db", "--dry-run"]);
    seen.run(dir, 0, &["seal", "s.db", "--for", "agentfs"]);
    in_database(seen);
    damaged(seen);
    exports(seen);
    changed_exports(seen);
}

fn in_database(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    let (url, copy) = (any().new_url().to_string(), any().new_url().to_string());
    let pushed = seen.run(dir, 0, &["push", "s.db", &url]).remove(0);
    assert_eq!((&pushed["session"], &pushed["url"]), (&"s.db".into(), &url.as_str().into()));
    let copied = seen.run(dir, 0, &["snapshot", &url, &copy]).remove(0);
    assert_eq!((&copied["bytes"], &copied["session_id"]), (&Value::Null, &Value::Null));
    let place = any().url("x").to_string().replace("/x?", "?");
    let names = seen.run(dir, 0, &["sessions", &place]);
    // Other tests have sessions there, too.
    let is_at_rest = |url: &str| {
        let name = url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap();
        let of_name = names.iter().find(|session| session["session"] == name);
        of_name.is_some_and(|session| session["holder"] == Value::Null)
    };
    assert!(is_at_rest(&url) && is_at_rest(&copy), "{names:?}");
    seen.run(dir, 0, &["pull", &url, "back.db"]);
    seen.run(dir, 0, &["init", &url]);
}

fn damaged(seen: &mut Seen) {
    let place = Place::new();
    let dir = place.path.parent().unwrap();
    half_empty(&place, 12);
    place.sql().execute_batch("UPDATE fs_inode SET nlink = 7 WHERE ino <> 1").unwrap();
    seen.run(dir, 1, &["check", "session.db", "--max", "1"]);
    seen.run(dir, 0, &["check", "session.db", "--repair"]);
    let place = Place::new();
    spec_versions::make(&place.path, &place.path.with_file_name("base"), "0.0");
    seen.run(place.path.parent().unwrap(), 0, &["migrate", "session.db"]);
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    seen.run(place.path.parent().unwrap(), 1, &["migrate", "session.db"]);
}

const EXPORTS: &str = r#"
[[export]]
path = "/chat"
clients = ["127.0.0.1"]
quota = { bytes = "1MiB", files = 10 }
hide = ["*.key"]

  [[export.mount]]
  at = "/"
  session = "chat.db"
  base = "base"

  [[export.mount]]
  at = "/memory"
  ephemeral = true

  [[export.guard]]
  path = "/log"
  jsonl = true

[[export]]
path = "/odd"
max_file_bytes = "1MiB"

  [[export.mount]]
  at = "/"
  session = "odd.db"
  base = "missing"

[[template]]
path = "/of/{user}"
allow = { user = "[a-z]+" }

  [[template.mount]]
  at = "/"
  session = "users/{user}.db"
"#;

fn exports(seen: &mut Seen) {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("base")).unwrap();
    fs::write(dir.join("exports.toml"), EXPORTS).unwrap();
    seen.run(dir, 1, &["config", "check", "exports.toml"]);
    seen.run(dir, 0, &["config", "token", "exports.toml", "/of/u"]);
    seen.run(dir, 0, &["quota", "--config", "exports.toml"]);
    let registry = registry_file(&dir.join("exports.toml"));
    let (registry, _) = InstanceRegistry::open(&registry).unwrap();
    registry.record("/of/u", &[]).unwrap();
    registry.complete().unwrap();
    seen.run(dir, 0, &["exports", "keep", "exports.toml", "/of/u"]);
}

fn changed_exports(seen: &mut Seen) {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("exports.toml"), "").unwrap();
    let add = ["exports", "add", "exports.toml", "a", "--session", "a.db"];
    let added = seen.run(dir, 0, &add).remove(0);
    assert_eq!((&added["path"], &added["is_served"]), (&"/a".into(), &false.into()), "{added}");
    seen.run(dir, 0, &["exports", "ls", "exports.toml"]);
    seen.run(dir, 0, &["exports", "rm", "exports.toml", "a", "--delete"]);
}
