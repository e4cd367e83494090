//! Bases and files that do not answer hold up nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::http::{Api, TOKEN, ask};
use super::{OPTIONS, PATIENCE, Site, end, export};
use crate::cli::program::run;
use crate::support::hanging_mount::HangingMount;
use crate::support::skip::skip;

/// What a change is told whose own check takes too long.
const SLOW_CHECK: &str = "the check of this change has not ended";

/// The exit code of a command, and what it says on stderr.
#[track_caller]
fn ended(child: Child) -> (Option<i32>, String) {
    let output = end(child);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Makes the directory `stuck`, also the base of the session `s.db`, and mounts over it what does
/// not answer.
fn hang(site: &Site) -> Option<HangingMount> {
    fs::create_dir(site.path("stuck")).unwrap();
    let made = run(site.dir.path(), &["init", "s.db", "--base", "stuck"]);
    assert!(made.status.success(), "{made:?}");
    let hanging = HangingMount::over(&site.path("stuck"));
    if hanging.is_none() {
        skip("FUSE cannot be mounted");
    }
    hanging
}

#[test]
fn a_base_that_hangs_is_refused_and_delays_no_other_change() {
    let site = Site::start();
    let Some(_hanging) = hang(&site) else { return };
    let given = site.begin("add", &["b", "--session", "b.db", "--base", "stuck"]);
    let recorded = site.begin("add", &["d", "--session", "s.db"]);
    let (code, said) = ended(site.begin("add", &["c", "--session", "c.db"]));
    assert_eq!(code, Some(0), "{said}");
    for child in [given, recorded] {
        let (code, said) = ended(child);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("stuck does not answer; nothing is changed"), "{said}");
    }
    assert_eq!(
        (site.names(), site.added_files()),
        (vec!["a".into(), "c".into()], vec!["c.toml".into()])
    );
    site.peer("/a");
}

#[test]
fn over_http_a_base_that_hangs_is_refused_and_delays_no_other_change() {
    let api = Api::with_token();
    let Some(_hanging) = hang(&api.site) else { return };
    let over = |base: &str| export("path = \"/b\"", "b.db", &format!("base = \"{base}\""));
    let address = api.address;
    let put = |name: &str, text: &str| {
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        ask(address, &format!("PUT /exports/{name}"), &bearer, text)
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3).map(|_| scope.spawn(|| put("b", &over("stuck")))).collect();
        let made = api.ask("PUT /exports/c", &export("path = \"/c\"", "c.db", ""));
        assert_eq!(made.status, 201, "{made:?}");
        for asking in asking {
            let refused = asking.join().unwrap();
            assert_eq!(refused.status, 422, "{refused:?}");
            assert!(refused.body.contains("stuck does not answer"), "{refused:?}");
        }
    });
    assert_eq!(api.names(), ["a", "c"]);
    assert_eq!(api.ask("PUT /exports/b", &over("base")).status, 201);
}

/// Another export of the site has a session in the directory, and so has one that is added.
#[test]
fn a_directory_of_sessions_that_hangs_is_refused_and_delays_no_other_change() {
    let mut site = Site::new(
        &(export("path = \"/a\"", "a.db", "base = \"base\"")
            + &export("path = \"/s\"", "stuck/s.db", "")),
    );
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("exports.d/r.toml"), export("path = \"/r\"", "stuck/r.db", "")).unwrap();
    fs::create_dir(site.path("sub")).unwrap();
    fs::write(site.path("exports.d/n.toml"), export("path = \"/n\"", "sub/s.db", "")).unwrap();
    let Some(hanging) = hang(&site) else { return };
    site.serve(&[]);
    let (code, said) = ended(site.begin("add", &["b", "--session", "stuck/b.db"]));
    assert_eq!(code, Some(2), "{said}");
    let words = "stuck does not answer; nothing is changed";
    assert!(said.contains("directory of sessions") && said.contains(words), "{said}");
    assert!(said.contains("hint: its filesystem hangs"), "{said}");
    // It may be that session, over another base, if a link leads there.
    let (code, said) = ended(site.begin("add", &["b", "--session", "r.db"]));
    assert!(code == Some(2) && said.contains(words), "{said}");
    assert!(run(site.dir.path(), &["init", "c.db"]).status.success());
    let (code, said) =
        ended(site.begin("add", &["c", "--session", "c.db", "--option", "insecure"]));
    assert_eq!(code, Some(0), "{said}");
    site.peer("/a");
    site.peer("/c");
    // What it has may not be deleted, and other exports can be removed.
    let (code, said) = ended(site.begin("rm", &["r", "--delete"]));
    assert!(code == Some(2) && said.contains(words), "{said}");
    let (code, said) = ended(site.begin("rm", &["n", "--delete"]));
    let may_be = "stuck does not answer: whether the export s uses it there is not known";
    assert!(code == Some(2) && said.contains(may_be) && said.contains("hint: its"), "{said}");
    assert!(site.path("sub/s.db").exists());
    site.done("rm", &["n"]);
    let (code, said) = ended(site.begin("rm", &["c", "--delete"]));
    assert_eq!((code, site.path("c.db").exists()), (Some(0), false), "{said}");
    let (code, said) = ended(site.begin("rm", &["r"]));
    assert_eq!((code, site.added_files()), (Some(0), Vec::new()), "{said}");
    assert!(site.mount("/s").is_none());
    drop(hanging);
    let deadline = Instant::now() + PATIENCE;
    while site.mount("/s").is_none() {
        assert!(Instant::now() < deadline, "{:?}", site.listed());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// As many as have a thread, and some more.
#[test]
fn over_http_a_directory_of_sessions_that_hangs_keeps_no_thread_of_a_change() {
    let api = Api::with_token();
    let Some(_hanging) = hang(&api.site) else { return };
    let address = api.address;
    let put = |name: &str| {
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        let text = export("path = \"/b\"", "stuck/b.db", "");
        ask(address, &format!("PUT /exports/{name}"), &bearer, &text)
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..24).map(|_| scope.spawn(|| put("b"))).collect();
        for asking in asking {
            let refused = asking.join().unwrap();
            let said = &refused.body;
            let is_told = match refused.status {
                422 => said.contains("stuck does not answer; nothing is changed"),
                503 => said.contains("changes are being checked") || said.contains(SLOW_CHECK),
                _ => false,
            };
            assert!(is_told, "{refused:?}");
        }
    });
    let made = api.ask("PUT /exports/c", &export("path = \"/c\"", "c.db", ""));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(api.names(), ["a", "c"]);
}

/// A site with an export `/a`, and exports `/t/NAME` of a template that has its sessions in
/// `stuck`; some of them are open.
fn with_open_instances() -> Site {
    let template = format!(
        "[[template]]\npath = \"/t/{{x}}\"\nallow = {{ x = \"[a-z]+\" }}\n{OPTIONS}\n\
         [[template.mount]]\nat = \"/\"\nsession = \"stuck/{{x}}.db\"\n"
    );
    let mut site = Site::new(&(export("path = \"/a\"", "a.db", "") + &template));
    fs::create_dir(site.path("stuck")).unwrap();
    site.serve(&[]);
    ('a'..='p').for_each(|name| drop(site.peer(&format!("/t/{name}"))));
    site
}

/// Their files are looked at every 2 s.
#[test]
fn open_sessions_in_a_directory_that_hangs_hold_up_no_other_export() {
    let site = with_open_instances();
    let Some(hanging) = HangingMount::over(&site.path("stuck")) else {
        return skip("FUSE cannot be mounted");
    };
    for _ in 0..5 {
        std::thread::sleep(Duration::from_secs(1));
        site.peer("/a");
    }
    drop(hanging);
    site.peer("/t/a");
}

#[test]
fn instances_whose_sessions_hang_hold_up_no_reload() {
    let site = with_open_instances();
    let Some(hanging) = HangingMount::over(&site.path("stuck")) else {
        return skip("FUSE cannot be mounted");
    };
    assert!(run(site.dir.path(), &["init", "c.db"]).status.success());
    let add = ["c", "--session", "c.db", "--option", "insecure"];
    let (code, said) = ended(site.begin("add", &add));
    assert_eq!(code, Some(0), "{said}");
    site.peer("/c");
    drop(hanging);
    site.peer("/t/a");
}

#[test]
fn the_directory_is_no_symbolic_link() {
    let site = Site::start();
    fs::create_dir(site.path("elsewhere")).unwrap();
    fs::write(site.path("elsewhere/d.toml"), export("path = \"/d\"", "d.db", "")).unwrap();
    symlink("elsewhere", site.path("exports.d")).unwrap();
    for words in [&["add", "b", "--session", "b.db"][..], &["rm", "d"], &["rm", "d", "--delete"]] {
        let said = site.fails(words[0], &words[1..]);
        assert!(said.contains("exports.d: "), "{said}");
        assert!(said.contains("a symbolic link, which is not followed"), "{said}");
    }
    let names: Vec<_> = fs::read_dir(site.path("elsewhere")).unwrap().collect();
    assert_eq!(names.len(), 1);
    fs::remove_file(site.path("exports.d")).unwrap();
    site.add("b");
}

#[test]
fn what_is_no_small_file_is_neither_read_nor_waited_for_and_can_be_removed() {
    let site = Site::start();
    fs::create_dir(site.path("exports.d")).unwrap();
    let file = site.path("exports.d/b.toml");
    let fifo = || assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let large = || {
        let text = export("path = \"/b\"", "b.db", "") + &"#".repeat(256 << 10);
        fs::write(&file, text).unwrap();
    };
    let secret = || {
        fs::write(site.path("secret"), "secret").unwrap();
        symlink("../secret", &file).unwrap();
    };
    let makes: [(&dyn Fn(), &str); 3] =
        [(&fifo, "not a regular file"), (&large, "at most 256 KiB"), (&secret, "symbolic link")];
    for (make, words) in makes {
        make();
        let add = ["b", "--session", "b.db", "--replace"];
        let (code, said) = ended(site.begin("add", &add));
        assert!(code == Some(2) && said.contains(words), "{said}");
        let (code, said) = ended(site.begin("rm", &["b", "--delete"]));
        assert!(code == Some(2) && said.contains(words), "{said}");
        let (code, said) = ended(site.begin("rm", &["b"]));
        assert_eq!(code, Some(0), "{said}");
        assert_eq!((site.added_files(), site.names()), (Vec::new(), vec!["a".to_owned()]));
    }
    // What an earlier removal may have left.
    assert!(
        Command::new("mkfifo").arg(site.path("exports.d/.b.removed")).status().unwrap().success()
    );
    let (code, said) = ended(site.begin("rm", &["b", "--delete"]));
    assert!(code == Some(2) && said.contains("not a regular file"), "{said}");
    assert_eq!(fs::read_to_string(site.path("secret")).unwrap(), "secret");
}

/// A start reads the files and then asks the bases, which takes 2 s with one that hangs.
#[test]
fn what_is_added_during_a_start_is_served() {
    let mut site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let Some(_hanging) = hang(&site) else { return };
    let text = export("path = \"/stuck\"", "t.db", "base = \"stuck\"");
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("exports.d/stuck.toml"), text).unwrap();
    let (dir, added) = (site.dir.path().to_owned(), export("path = \"/b\"", "b.db", ""));
    let adding = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        fs::write(dir.join("exports.d/b.toml"), added).unwrap();
    });
    site.serve(&[]);
    adding.join().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while site.mount("/b").is_none() {
        assert!(Instant::now() < deadline, "{:?}", site.names());
        std::thread::sleep(Duration::from_millis(50));
    }
}
