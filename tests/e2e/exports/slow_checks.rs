//! Content that takes very long to check: its client waits, others do not.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use acetate::config::{self, Missing};
use acetate::workspace::exports::ServedExports;
use nfs3_client::nfs3_types::nfs3::{createhow3, nfsstat3, stable_how};
use tokio::runtime::Runtime;

use super::Site;
use crate::e2e::peer::mode;

const TREE: &str = r##"{ "$ref": "#/$defs/node", "$defs": { "node": { "anyOf": [
    {"required": ["type"], "properties": {
        "type": {"const": "a"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "b"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "c"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "d"}, "children": {"items": {"$ref": "#/$defs/node"}}}}
]}}}"##;

/// Each of these texts is valid after 2^16 steps.
const SLOW: &str = r#"{"items": {"pattern": "^(?:(?:a|a)+(?=c)c|a)"}}"#;

const EXPORTS: &str = r#"
    [[export]]
    path = "/hostile"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "h.db"
      [[export.guard]]
      path = "/*.slow"
      json_schema = "slow.schema.json"
      [[export.guard]]
      path = "/*.tree"
      json_schema = "tree.schema.json"

    [[export]]
    path = "/other"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "o.db"
      [[export.guard]]
      path = "/*.tree"
      json_schema = "tree.schema.json"
"#;

fn exports(dir: &std::path::Path) -> String {
    fs::write(dir.join("slow.schema.json"), SLOW).unwrap();
    fs::write(dir.join("tree.schema.json"), TREE).unwrap();
    let at = |name: &str| format!("\"{}/{name}", dir.display());
    EXPORTS.replace("\"slow.sch", &at("slow.sch")).replace("\"tree.sch", &at("tree.sch"))
}

#[test]
fn content_that_is_slow_to_check_is_refused_and_others_go_on() {
    let schemas = tempfile::tempdir().unwrap();
    let mut site = Site::start("x \"x\"\n", &exports(schemas.path()));
    site.wait(async {
        let address = site.running.as_ref().unwrap().address;
        let mount = async |path| super::Peer::mount(address, path, 0, 0).await.unwrap();
        let (mut hostile, mut nested) = (mount("/hostile").await, mount("/hostile").await);
        let mut other = mount("/other").await;
        let start = Instant::now();
        let slow = async {
            let root = hostile.root.clone();
            let how = createhow3::UNCHECKED(mode(0o644));
            let file = hostile.create(&root, "a.slow", how).await.unwrap();
            let text = format!("[{}\"a\"]", r#""aaaaaaaaaaaaaaaa","#.repeat(20_000));
            let written = hostile.write(&file, 0, text.as_bytes(), stable_how::FILE_SYNC).await;
            (written.map(drop), start.elapsed())
        };
        let deep = async {
            let root = nested.root.clone();
            let how = createhow3::UNCHECKED(mode(0o644));
            let file = nested.create(&root, "b.tree", how).await.unwrap();
            for levels in [11, 30] {
                let (open, close) = (r#"{"type":"a","children":["#, "]}");
                let text = open.repeat(levels) + r#"{"type":"x"}"# + &close.repeat(levels);
                let written = nested.write(&file, 0, text.as_bytes(), stable_how::FILE_SYNC).await;
                assert_eq!(written.map(drop), Err(nfsstat3::NFS3ERR_INVAL));
            }
        };
        let works = async {
            let root = other.root.clone();
            let mut longest = Duration::ZERO;
            for number in 0..20 {
                let begun = Instant::now();
                let how = createhow3::UNCHECKED(mode(0o644));
                let file = other.create(&root, &format!("{number}.tree"), how).await.unwrap();
                let text = br#"{"type":"a","children":[{"type":"b"}]}"#;
                other.write(&file, 0, text, stable_how::FILE_SYNC).await.unwrap();
                other.getattr(&file).await.unwrap();
                longest = longest.max(begun.elapsed());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            longest
        };
        let ((slow, after), (), longest) = tokio::join!(slow, deep, works);
        assert_eq!(slow, Err(nfsstat3::NFS3ERR_INVAL));
        assert!(after < Duration::from_secs(30), "{after:?}");
        assert!(longest < Duration::from_secs(4), "{longest:?}");
    });
    let conn = rusqlite::Connection::open(site.path("h.db")).unwrap();
    let mut notes = conn.prepare("SELECT note FROM acetate_op WHERE procedure = 'REFUSE'").unwrap();
    let notes: Vec<String> =
        notes.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(notes.contains(&"cannot be checked within 5s".to_owned()), "{notes:?}");
    site.stop();
}

#[test]
fn a_schema_without_a_program_that_checks_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("exports.toml");
    fs::write(&file, exports(dir.path())).unwrap();
    let runtime = Runtime::new().unwrap();
    let mut served = ServedExports::new(&file, false, runtime.handle().clone(), None);
    let loaded = served.load(&config::read(&file, Missing::Make).unwrap(), &BTreeSet::new());
    let Err(error) = loaded else { panic!("it is served") };
    let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(
        format!("{error} {said}").contains("need the path of an `acetate` program"),
        "{error} {said}"
    );
    super::close_all(&mut served);
}
