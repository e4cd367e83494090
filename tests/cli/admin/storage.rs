//! Sessions: commits, caches, copies, quotas, guards.

use std::fs;

use nfs3_client::nfs3_types::nfs3::{COMMIT3args, createhow3, sattr3, stable_how};

use super::Watched;
use crate::cli::program::run;
use crate::e2e::peer::{Peer, mode, plain};
use crate::support::http::{Scraped, get};

#[test]
fn commits_and_syncs_are_observed() {
    let watched = Watched::start("", &[]);
    let mut peer = watched.peer();
    let before = Scraped::of(watched.admin);
    watched.runtime.block_on(async {
        let root = peer.root.clone();
        for name in ["a", "b", "c"] {
            peer.mkdir(&root, name).await.unwrap();
        }
        let how = createhow3::GUARDED(sattr3::default());
        let file = peer.create(&root, "file", how).await.unwrap();
        peer.write(&file, 0, b"x", stable_how::UNSTABLE).await.unwrap();
        let args = COMMIT3args { file, offset: 0, count: 0 };
        plain(peer.nfs.commit(&args).await.unwrap()).unwrap();
    });
    let after = Scraped::of(watched.admin);
    let grown = |name: &str| after.value(name) - before.value(name);
    assert_eq!(grown("acetate_batch_operations_sum"), 5.0, "four objects and a WRITE");
    assert_eq!(grown("acetate_batch_operations_count"), 5.0, "one after another");
    assert!(grown("acetate_sync_duration_seconds_count") >= 1.0, "COMMIT");
    assert!(grown("acetate_sync_duration_seconds_sum") > 0.0);
    assert!(after.value("acetate_wal_bytes") > after.value("acetate_wal_uncheckpointed_bytes"));
    assert!(after.value("acetate_wal_uncheckpointed_bytes") > 0.0);
    assert_eq!(after.value("acetate_sessions"), 1.0);
    assert_eq!(after.value("acetate_exports"), 1.0);
    assert_eq!(after.value("acetate_sessions_failed"), 0.0);
}

#[test]
fn a_checkpoint_of_the_wal_leaves_nothing_uncheckpointed() {
    let watched = Watched::start("", &[]);
    let mut peer = watched.peer();
    watched.runtime.block_on(async {
        let root = peer.root.clone();
        let file = peer.put(&root, "file", "").await;
        let piece = vec![7; 1 << 20];
        // More than the WAL has at its first checkpoint.
        for at in 0..20 {
            peer.write(&file, at << 20, &piece, stable_how::UNSTABLE).await.unwrap();
        }
    });
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let scraped = Scraped::of(watched.admin);
        let checkpoints = scraped.value("acetate_wal_checkpoint_duration_seconds_count");
        if checkpoints >= 1.0 && scraped.value("acetate_wal_uncheckpointed_bytes") < 4e6 {
            assert_eq!(scraped.value("acetate_written_bytes_total"), 20.0 * 1048576.0);
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", scraped.0);
    }
}

#[test]
fn caches_and_copies_are_counted() {
    let watched = Watched::start("dir/file \"content\"\ndir/other \"x\"", &[]);
    let mut peer = watched.peer();
    let count = |scraped: &Scraped, what: &str, cache: &str| {
        scraped.value(&format!("acetate_cache_{what}{{cache=\"{cache}\"}}"))
    };
    watched.runtime.block_on(async {
        let file = peer.at("dir/file").await;
        for _ in 0..10 {
            peer.getattr(&file).await.unwrap();
        }
        let dir = peer.at("dir").await;
        peer.ls(&dir).await;
        peer.ls(&dir).await;
        let before = Scraped::of(watched.admin);
        assert!(count(&before, "hits_total", "locations") >= 9.0, "{:?}", before.0);
        assert!(count(&before, "entries", "locations") >= 1.0);
        assert!(count(&before, "hits_total", "listings") >= 1.0);
        assert_eq!(count(&before, "entries", "listings"), 1.0);
        assert!(count(&before, "entries", "base_dirs") >= 1.0);
        assert_eq!(before.value("acetate_copy_ups_total"), 0.0);
        peer.setattr(&file, mode(0o600)).await.unwrap();
        peer.setattr(&file, mode(0o640)).await.unwrap();
    });
    let after = Scraped::of(watched.admin);
    assert_eq!(after.value("acetate_copy_ups_total"), 1.0);
    assert_eq!(after.value("acetate_copy_up_pending_bytes"), 0.0);
    assert!(after.0.contains_key("acetate_copy_up_pending_bytes"));
}

#[test]
fn the_quota_of_a_session_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let quota = ["quota", "s.db", "--bytes", "1MiB", "--files", "10"];
    assert!(run(dir.path(), &quota).status.success());
    let watched = Watched::start_in(dir, &["s.db", "--insecure"]);
    let mut peer = watched.peer();
    watched.runtime.block_on(async {
        let root = peer.root.clone();
        peer.put(&root, "file", "12345").await;
    });
    let scraped = Scraped::of(watched.admin);
    let value = |name: &str| scraped.value(&format!("acetate_quota_{name}{{export=\"/\"}}"));
    assert_eq!(value("limit_bytes"), 1048576.0);
    assert_eq!(value("limit_files"), 10.0);
    assert_eq!(value("used_files"), 1.0);
    assert_eq!(value("used_bytes"), 5.0);
}

const EXPORTS: &str = r#"
[[export]]
name = "hush"
token = true
options = ["insecure", "no_root_squash"]
quota = { bytes = "2MiB" }
  [[export.mount]]
  at = "/"
  session = "h.db"
[[export]]
path = "/open"
options = ["insecure", "no_root_squash"]
  [[export.mount]]
  at = "/"
  session = "o.db"
  [[export.guard]]
  path = "/*.json"
  json = true
[[export]]
path = "/gone"
  [[export.mount]]
  at = "/"
  session = "g.db"
  base = "gone"
"#;

#[test]
fn exports_are_shown_by_name_and_no_token_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    let watched = Watched::start_in(dir, &["--config", "exports.toml"]);
    let token = fs::read_to_string(watched.path("exports.toml.tokens")).unwrap();
    let token = token.lines().last().unwrap().split('"').nth(3).unwrap().to_owned();
    watched.runtime.block_on(async {
        let path = format!("/hush-{token}");
        let mut secret = Peer::mount(watched.address(), &path, 0, 0).await.unwrap();
        let root = secret.root.clone();
        secret.put(&root, "file", "123").await;
        let mut open = Peer::mount(watched.address(), "/open", 0, 0).await.unwrap();
        let root = open.root.clone();
        let how = createhow3::UNCHECKED(sattr3::default());
        let file = open.create(&root, "a.json", how).await.unwrap();
        assert!(open.write(&file, 0, b"{", stable_how::FILE_SYNC).await.is_err());
    });
    let scraped = Scraped::of(watched.admin);
    assert_eq!(scraped.value("acetate_exports"), 2.0);
    assert_eq!(scraped.value("acetate_exports_unavailable"), 1.0);
    assert_eq!(scraped.value("acetate_sessions"), 2.0);
    assert_eq!(scraped.value("acetate_quota_limit_bytes{export=\"hush\"}"), 2097152.0);
    assert_eq!(scraped.value("acetate_quota_used_bytes{export=\"hush\"}"), 3.0);
    assert_eq!(scraped.all("acetate_quota_limit_bytes").len(), 1);
    assert!(scraped.value("acetate_guard_refusals_total") >= 1.0);
    assert!(!get(watched.admin, "/metrics").body.contains(&token));
}
