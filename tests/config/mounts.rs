//! `[[export.mount]]`, and sessions that several of them share.

use std::path::PathBuf;

use acetate::config::{
    CheckpointsConfig, KeepCheckpointsConfig, KeepLogConfig, Missing, StoreConfig, limits,
};

use super::{Folder, export, fault, faults, with};

/// An export `/NAME` with mounts, each as lines.
fn exported(name: &str, lines: &str, mounts: &[&str]) -> String {
    let mounts: String = mounts.iter().map(|m| format!("[[export.mount]]\n{m}\n")).collect();
    format!("[[export]]\npath = \"/{name}\"\n{lines}\n{mounts}")
}

const ROOT: &str = "at = \"/\"\nsession = \"s.db\"";

#[test]
fn paths_are_absolute_or_begin_at_the_files_folder() {
    let folder = Folder::new(&exported(
        "x",
        "",
        &[
            "at = \"/\"\nsession = \"chats/./abc.db\"\nbase = \"/home/me/project\"",
            "at = \"/.user\"\nsession = \"/var/u1.db\"\nsubtree = \"/agents/a1\"\n\
                chunk_size = 4096\nkeep_originals = \"4MiB\"\n\
                keep_log = { changes = 9, days = 2 }\n\
                checkpoints = \"idle\"\n\
                keep_checkpoints = { newest = 9, daily = \"30d\", bytes = 5 }",
            "at = \"/skills/on\"\nbase = \"skills/on\"\nephemeral = true",
            "at = \"/.agent\"\nsession = \"a.db\"\noptions = [\"ro\"]",
        ],
    ));
    let mounts = folder.read(Missing::Leave).unwrap().exports[0].mounts.clone();
    let session = |n: usize| mounts[n].session().cloned();
    assert_eq!(session(0), Some(folder.path().join("chats/abc.db")));
    assert_eq!(mounts[0].base, Some(PathBuf::from("/home/me/project")));
    assert!(mounts[0].at.is_root() && mounts[0].subtree.is_root());
    let user: Vec<_> = mounts[1].subtree.components().collect();
    assert_eq!((session(1), user), (Some("/var/u1.db".into()), vec!["agents", "a1"]));
    let store = StoreConfig::Session { file: "/var/u1.db".into(), chunk_size: Some(4096) };
    assert_eq!(mounts[1].store, store);
    assert_eq!((mounts[0].keep_originals, mounts[1].keep_originals), (None, Some(4 << 20)));
    let keep_log = KeepLogConfig { changes: Some(9), days: Some(2) };
    assert_eq!((mounts[0].keep_log, mounts[1].keep_log), (None, Some(keep_log)));
    let checkpoints = CheckpointsConfig::Idle(limits::DEFAULT_IDLE_GAP);
    assert_eq!((mounts[0].checkpoints, mounts[1].checkpoints), (None, Some(checkpoints)));
    let keep = KeepCheckpointsConfig {
        newest: Some(9),
        daily_secs: Some(30 * 86_400),
        max_bytes: Some(5),
        ..KeepCheckpointsConfig::default()
    };
    assert_eq!((mounts[0].keep_checkpoints, mounts[1].keep_checkpoints), (None, Some(keep)));
    assert_eq!(mounts[2].store, StoreConfig::Memory);
    assert_eq!(mounts[2].base, Some(folder.path().join("skills/on")));
    let read_only: Vec<_> = mounts.iter().map(|mount| mount.is_read_only).collect();
    assert_eq!(read_only, [false, false, false, true]);
}

#[test]
fn an_export_that_is_read_only_is_so_in_all_its_mounts() {
    let mounts = [ROOT, "at = \"/b\"\nsession = \"b.db\"\noptions = [\"rw\"]"];
    let export = export(&exported("x", "options = [\"ro\"]", &mounts));
    assert!(export.mounts.iter().all(|mount| mount.is_read_only));
}

#[test]
fn a_mount_says_where_changes_go() {
    let mount = |lines: &str| exported("x", "", &[&format!("at = \"/\"\n{lines}")]);
    faults(&[
        (
            &mount(""),
            "4:1: this mount has no place for changes [add session = \"FILE.db\", or ephemeral = \
             true for changes in memory; a read-only mount needs one of them too]",
        ),
        (&mount("options = [\"ro\"]"), "this mount has no place for changes"),
        (&mount("base = \"/b\""), "this mount has no place for changes"),
        (&mount("ephemeral = false"), "this mount has no place for changes"),
        (
            &mount("session = \"s.db\"\nephemeral = true"),
            "6:11: `session` and `ephemeral` exclude each other [leave one",
        ),
        (&mount("ephemeral = true\nchunk_size = 4096"), "7:14: chunk_size is for the file"),
        (&mount("session = \"s.db\"\nchunk_size = 1000"), "chunk_size must be a power of two"),
        (
            &mount("session = \"s.db\"\nkeep_originals = \"17MiB\""),
            "7:18: originals are kept of files of at most 16MiB",
        ),
        (
            &mount("session = \"s.db\"\ncheckpoints = \"idle:0\""),
            "7:15: checkpoints: expected off, tools, idle, or idle:SECONDS with 1 to 3600",
        ),
        (
            &mount("session = \"s.db\"\nkeep_checkpoints = {}"),
            "7:20: keep_checkpoints says which automatic checkpoints are kept [such as",
        ),
        (
            &mount("session = \"s.db\"\nkeep_checkpoints = { hourly = 3 }"),
            "7:31: hourly is an age, such as 12h",
        ),
        (
            &mount("session = \"s.db\"\nkeep_checkpoints = { newest = 10001 }"),
            "at most 10000 checkpoints are kept",
        ),
        (
            &mount("session = \"s.db\"\nkeep_checkpoints = { hourly = \"367d\" }"),
            "kept for at most 366 days",
        ),
        (&mount("ephemeral = true\nkeep_checkpoints = { newest = 1 }"), "checkpoints are of a"),
        (&mount("ephemeral = true\ncheckpoints = \"tools\""), "7:15: checkpoints are of a"),
        (&mount("session = \"~/s.db\""), "'~' does not stand for a home directory here [write"),
        (&mount("session = \"\""), "6:11: not a path"),
        (&mount("session = \"s.db\"\nsubtree = \"a\""), "7:11: a path must begin with '/'"),
        (
            &mount("session = \"s.db\"\noptions = [\"secure\"]"),
            "7:12: 'secure' is not an option of a mount [a mount has ro or rw",
        ),
        (&mount("session = \"s.db\"\noptions = [\"rw\", \"ro\"]"), "ro or rw, not both"),
        (&exported("x", "", &["session = \"s.db\""]), "missing field `at`"),
    ]);
}

#[test]
fn mounts_of_an_export_are_apart() {
    let below = |at: &str, more: &str| format!("at = \"{at}\"\n{more}");
    let two = |second: &str| exported("x", "", &[ROOT, second]);
    faults(&[
        (&exported("x", "", &[]), "1:1: this export has no mount at '/' [add [[export.mount]]"),
        (&exported("x", "", &["at = \"/a\"\nsession = \"s.db\""]), "no mount at '/'"),
        (&two(&below("/", "session = \"t.db\"")), "7:1: the export has a mount at / in line 4"),
        (&two(&below("/a", "session = \"s.db\"")), "shows this directory in line 4 already [two"),
        (&two(&below("/a/", "session = \"t.db\"")), "a path cannot contain an empty name"),
    ]);
    let mounts = export(&two(&below("/a", "session = \"s.db\"\nsubtree = \"/a\""))).mounts;
    assert_eq!(mounts.len(), 2);
    // However the file is named.
    let folder = Folder::new(&two(&below("/a", "session = \"link/s.db\"")));
    std::os::unix::fs::symlink(".", folder.path().join("link")).unwrap();
    let said = folder.read(Missing::Leave).unwrap_err();
    assert!(said.to_string().contains("shows this directory in line 4 already"), "{said}");
}

#[test]
fn a_session_in_several_mounts_is_over_one_base() {
    let x = exported("x", "hide = [\"a\"]", &["at = \"/\"\nsession = \"s.db\"\nbase = \"b\""]);
    let y = |lines: &str, mount: &str| {
        [x.clone(), exported("y", lines, &[&format!("{ROOT}\n{mount}")])].concat()
    };
    faults(&[(
        &y("hide = [\"a\"]", "base = \"c\""),
        "s.db has a different `base` in line 4 [all mounts of a session share its base",
    )]);
    let folder = Folder::new(&y("hide = [\"a\"]", "chunk_size = 4096"));
    let exports = folder.read(Missing::Leave).unwrap().exports;
    for export in &exports {
        assert_eq!(export.mounts[0].hide, export.hide);
        assert_eq!(export.mounts[0].base, Some(folder.path().join("b")));
        let StoreConfig::Session { chunk_size, .. } = export.mounts[0].store else { panic!() };
        assert_eq!(chunk_size, Some(4096));
    }
    let sizes = [x, exported("y", "hide = [\"a\"]", &[&format!("{ROOT}\nchunk_size = 512")])];
    let third = exported("z", "hide = [\"a\"]", &[&format!("{ROOT}\nchunk_size = 1024")]);
    let said = fault(&[sizes.concat(), third].concat());
    assert!(said.contains("a different `chunk_size` in line 11"), "{said}");
    let originals =
        |name: &str, size: u64| exported(name, "", &[&format!("{ROOT}\nkeep_originals = {size}")]);
    let said = fault(&[originals("x", 1), originals("y", 2)].concat());
    assert!(said.contains("a different `keep_originals` in line 4"), "{said}");
    let log = |name: &str, days: u64| {
        exported(name, "", &[&format!("{ROOT}\nkeep_log = {{ days = {days} }}")])
    };
    let said = fault(&[log("x", 1), log("y", 2)].concat());
    assert!(said.contains("a different `keep_log` in line 4"), "{said}");
    let mode = |name: &str, mode: &str| {
        exported(name, "", &[&format!("{ROOT}\ncheckpoints = \"{mode}\"")])
    };
    let said = fault(&[mode("x", "idle:3"), mode("y", "idle:4")].concat());
    assert!(said.contains("a different `checkpoints` in line 4"), "{said}");
    let keep = |name: &str, newest: u64| {
        exported(name, "", &[&format!("{ROOT}\nkeep_checkpoints = {{ newest = {newest} }}")])
    };
    let said = fault(&[keep("x", 3), keep("y", 4)].concat());
    assert!(said.contains("a different `keep_checkpoints` in line 4"), "{said}");
    let said = fault(&exported("x", "", &[&format!("{ROOT}\nkeep_log = {{}}")]));
    assert!(said.contains("keep_log says how many changes"), "{said}");
}

#[test]
fn exports_that_share_a_session_hide_what_all_of_them_hide() {
    let other = "at = \"/m\"\nsession = \"t.db\"";
    let both = [
        exported("x", "hide = [\"a\"]", &[ROOT]),
        exported("y", "hide = [\"b\", \"a\"]", &[ROOT, other]),
        exported("z", "", &[ROOT]),
    ];
    let exports = Folder::new(&both.concat()).read(Missing::Leave).unwrap().exports;
    let hidden = |export: usize, mount: usize| {
        let hide = &exports[export].mounts[mount].hide;
        hide.patterns().iter().map(|p| p.as_str().to_owned()).collect::<Vec<_>>()
    };
    for export in 0..3 {
        assert_eq!(hidden(export, 0), ["a", "b"]);
    }
    assert_eq!(hidden(1, 1), ["b", "a"]);
    assert!(exports[2].hide.is_empty());
}

#[test]
fn a_session_without_a_base_may_be_where_other_things_are_hidden() {
    let both = [
        exported("x", "hide = [\"a\"]", &[ROOT]),
        exported(
            "y",
            "hide = [\"b\"]",
            &["at = \"/\"\nephemeral = true", &ROOT.replace("/", "/u")],
        ),
    ];
    assert_eq!(Folder::new(&both.concat()).read(Missing::Leave).unwrap().exports.len(), 2);
}

#[test]
fn mounts_are_limited() {
    let mount = |n: usize| format!("at = \"/m{n}\"\nsession = \"{n}.db\"");
    let mounts: Vec<_> = (1..=limits::MAX_MOUNTS).map(mount).collect();
    let all: Vec<&str> = [ROOT].into_iter().chain(mounts.iter().map(String::as_str)).collect();
    let said = fault(&exported("x", "", &all));
    assert!(said.contains("at most 64 mounts in an export"), "{said}");
    assert_eq!(export(&exported("x", "", &all[..64])).mounts.len(), 64);
    assert!(export(&with("")).mounts[0].at.is_root());
}
