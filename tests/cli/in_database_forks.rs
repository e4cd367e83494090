//! `fork`, `merge` and `hide` of sessions in a database.

use super::in_database::Kept;
use super::program::said;
use crate::support::database::server::any;

#[test]
fn a_fork_is_made_in_a_file_or_in_a_database_and_comes_back() {
    for is_served in [false, true] {
        let kept = Kept::new();
        let server = is_served.then(|| kept.serve("served", &[]));
        kept.write("/n", "new\n");
        said(&kept.run(&["kv", "set", &kept.url, "key", "7"]), 0);
        let (other, again) = (any().new_url().to_string(), any().new_url().to_string());
        let (out, _) = kept.try_on("fork", &["fork.db", &other], 0);
        for (fork, dir) in [("fork.db", "/file"), (&*other, "/database")] {
            let line = format!("{}: forked at checkpoint 1 to {fork}, ", kept.url);
            assert!(out.contains(&line), "{out}");
            said(&kept.run(&["mkdir", fork, dir]), 0);
            assert_eq!(said(&kept.run(&["ls", fork]), 0).0, format!("a\n{}\nn\n", &dir[1..]));
            assert_eq!(said(&kept.run(&["kv", "get", fork, "key"]), 0).0, "7\n");
            assert!(said(&kept.run(&["check", fork]), 0).0.contains("sound"));
        }
        kept.on("mkdir", &["/apart"]);
        assert_eq!(kept.on("ls", &[]), "a\napart\nn\n");
        // From a file to a database, and a fork of a fork.
        said(&kept.run(&["fork", "fork.db", &again]), 0);
        said(&kept.run(&["mkdir", &again, "/deep"]), 0);
        said(&kept.run(&["merge", "fork.db", &again, "--yes"]), 0);
        for fork in ["fork.db", &other] {
            kept.on("merge", &[fork, "--yes"]);
        }
        assert_eq!(kept.on("ls", &[]), "a\napart\ndatabase\ndeep\nfile\nn\n");
        assert!(kept.on("check", &[]).contains("sound"));
        drop(server);
    }
}

#[test]
fn a_fork_that_cannot_be_made_leaves_no_checkpoint() {
    let kept = Kept::new();
    let other = any().new_url().to_string();
    said(&kept.run(&["init", &other]), 0);
    for (new, what) in [(&other, "the session exists"), (&kept.url, "the file exists")] {
        let (_, error) = kept.try_on("fork", &["new.db", new], 2);
        assert!(error.contains(&format!("{new}: {what}: no fork was made")), "{error}");
    }
    let other = any().new_url().to_string();
    let (_, error) = kept.try_on("fork", &[&other, &other], 2);
    assert!(error.contains("the name is given twice"), "{error}");
    let (_, told) = said(&kept.run(&["checkpoint", "ls", &kept.url]), 1);
    assert_eq!(told, "the session has no checkpoints\n");
}

#[test]
fn a_session_hides_more_while_no_server_has_it() {
    let kept = Kept::new();
    assert_eq!(kept.on("hide", &["--hide", "/secret", "--hide", ".env*"]), "/secret\n.env*\n");
    kept.on("hide", &["--remove", "/secret"]);
    assert_eq!(kept.on("hide", &[]), ".env*\n");
    let (_, error) = kept.try_on("hide", &["--remove", "/secret"], 2);
    let hint = format!("`acetate hide '{}'` prints the list", kept.url);
    assert!(error.contains("does not hide /secret") && error.contains(&hint), "{error}");
    std::fs::write(kept.path().join("base/.env"), "x").unwrap();
    assert_eq!(kept.on("ls", &[]), "a\n");
    // The database has it: a replica that is made again, too.
    std::fs::remove_dir_all(kept.path().join("acetate")).unwrap();
    assert_eq!(kept.on("hide", &[]), ".env*\n");
    assert!(kept.on("check", &[]).contains("sound"));
    let server = kept.serve("served", &[]);
    let (_, error) = kept.try_on("hide", &["--hide", "more"], 2);
    assert!(error.contains("the session is served by"), "{error}");
    assert_eq!(kept.on("hide", &[]), ".env*\n");
    drop(server);
}
