//! What commands print of a session in a database: its URL, and never the path of the replica that
//! they work on.

use std::fs;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::in_database::Kept;
use super::program::said;
use crate::support::database::server::any;

/// Commands on the session `S`, in their order, with exit codes: they succeed, find something, or
/// fail with a message.
const COMMANDS: &[(&str, i32)] = &[
    ("ls S /", 0),
    ("mkdir S /d", 0),
    ("mkdir S /d", 2),
    ("touch S /d/f", 0),
    ("cp S :/a :/b", 0),
    ("mv S /b /c", 0),
    ("ln S /a /hard", 0),
    ("chmod S 600 /a", 0),
    ("chmod S 600 /none", 2),
    ("tree S", 0),
    ("cat S /a", 0),
    ("cat S /none", 2),
    ("stat S /a", 0),
    ("stat S /a --json", 0),
    ("find S", 0),
    ("du S", 0),
    ("status S", 0),
    ("diff S", 1),
    ("diff S --json", 1),
    ("diff S -p", 1),
    ("log S", 0),
    ("log S --json", 0),
    ("log S --summary", 0),
    ("check S", 0),
    ("check S --json", 0),
    ("export S --dir out", 0),
    ("export S --dir out", 2),
    ("export S --dir out2 --json", 0),
    ("checkpoint create S first", 0),
    ("checkpoint create S first", 2),
    ("checkpoint create S --json", 0),
    ("checkpoint ls S", 0),
    ("checkpoint ls S --json", 0),
    ("rm S /c", 0),
    ("rm S /c", 2),
    ("rmdir S /d", 2),
    ("restore S first --dry-run", 0),
    ("restore S first --yes", 0),
    ("restore S first --yes --json", 1),
    ("restore S none --yes", 2),
    ("undo S --dry-run", 0),
    ("undo S --yes", 0),
    ("undo S --yes --json", 0),
    ("checkpoint rm S first", 0),
    ("checkpoint rm S first", 2),
    ("checkpoint prune S --keep 1", 0),
    ("quota S", 0),
    ("quota S --json", 0),
    ("quota S --bytes 1GiB", 0),
    ("hide S", 0),
    ("hide S --json", 0),
    ("fork S fork.db --json", 0),
    ("mkdir fork.db /of-fork", 0),
    ("merge S fork.db --yes", 0),
    ("merge S fork.db --yes", 1),
    ("merge S other.db --yes", 2),
    ("snapshot S copy.db", 0),
    ("snapshot S copy.db", 2),
    ("apply S --dry-run", 0),
    ("apply S --dry-run --json", 0),
    ("discard S /hard --yes", 0),
    ("discard S /none --yes", 2),
    ("apply S --yes", 0),
    ("apply S --undo --yes", 0),
    ("apply S --undo --yes", 0),
    ("status S", 0),
    ("mkdir S /more", 0),
    ("apply S --yes --json", 0),
    ("discard S / --yes", 1),
    ("status S --json", 0),
    ("ctx get S viking://user/a/none", 2),
    ("kv ls S", 0),
    ("tool run S step -- true", 0),
    ("tool show S 1", 0),
    ("tool show S 9", 1),
    ("restore S --tool-call 9 --yes", 2),
];

#[test]
fn no_command_prints_the_path_of_the_replica() {
    for is_served in [false, true] {
        let kept = Kept::new();
        said(&kept.run(&["init", "other.db"]), 0);
        let server = is_served.then(|| kept.serve("served", &[]));
        let mut faults = Vec::new();
        for (words, code) in COMMANDS {
            let words: Vec<_> = words.split(' ').map(|word| of(&kept, word)).collect();
            let output = kept.run(&words);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let (out, error) = (text(&output.stdout), text(&output.stderr));
            let lines = out.lines().chain(error.lines());
            // `status` has a line for it.
            let mut lines = lines.filter(|line| !line.starts_with("replica "));
            if output.status.code() != Some(*code) || lines.any(has_replica) {
                let code = output.status.code();
                faults.push(format!("{words:?}: {code:?}: {out}{error}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        drop(server);
    }
}

fn of<'a>(kept: &'a Kept, word: &'a str) -> &'a str {
    if word == "S" { &kept.url } else { word }
}

/// Whether a line names a replica; a file beside it may be named.
fn has_replica(line: &str) -> bool {
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"[0-9a-f]{16}-[0-9a-f]{16}(-[0-9]+)?\.db(\.?$|\.?[^-.0-9A-Za-z])").unwrap()
    });
    NAME.is_match(line)
}

#[test]
fn a_replica_is_seen() {
    assert!(has_replica("error: /x/acetate/0123456789abcdef-0123456789abcdef-1.db: no space"));
    assert!(has_replica("`acetate diff '/a b/0123456789abcdef-0123456789abcdef.db'`"));
    assert!(has_replica("it is /r/0123456789abcdef-0123456789abcdef.db."));
    assert!(!has_replica("its log: /r/0123456789abcdef-0123456789abcdef.db.log"));
    assert!(!has_replica("kept in /r/0123456789abcdef-0123456789abcdef.db-undo: 0 B"));
    assert!(!has_replica("postgres://h/db/s?schema=x: /tmp/a-b.db"));
}

#[test]
fn hints_name_the_session_as_a_shell_needs_it() {
    let kept = Kept::new();
    let url = kept.url.as_str();
    assert!(url.contains('?'), "a shell would expand it");
    kept.write("/n", "new\n");
    said(&kept.run(&["checkpoint", "create", url, "first"]), 0);
    kept.on("mkdir", &["/d"]);
    let (_, told) = kept.try_on("restore", &["first", "--yes"], 0);
    assert!(told.contains(&format!("acetate undo '{url}'")), "{told}");
    let object: Value = serde_json::from_str(&kept.on("check", &["--json"])).unwrap();
    assert_eq!(object["session"], url);
    assert!(kept.on("check", &[]).starts_with(&format!("{url}: sound")), "the session comes first");
    let (_, error) = kept.try_on("merge", &["none.db"], 2);
    assert!(error.contains("none.db"), "{error}");
    let missing = any().new_url().to_string();
    let (_, error) = said(&kept.run(&["ls", &missing]), 2);
    assert!(error.contains(&missing), "{error}");
    let status: Value = serde_json::from_str(&kept.on("status", &["--json"])).unwrap();
    assert_eq!(status["session"], url, "{status}");
    fs::remove_dir_all(kept.path().join("acetate")).unwrap();
    assert_eq!(kept.on("ls", &[]), "a\nn\n");
}
