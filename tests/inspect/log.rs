//! The audit log: which rows, in which order.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use acetate::delta::sqlite::{AuditFilter, ChangeSource, InvalidRow, Order};
use acetate::delta::{AuditProcedure, AuditRow, MergedPath};
use acetate::inspect::InspectError;
use acetate::inspect::log::{AuditLog, LogOptions, PathState, now};
use acetate::inspect::opened::{OpenSession, open_session};
use acetate::vfs::{CreateHow, FileId, Time};

use crate::support::world::{START_SECS, World};

pub type Rows = Vec<(i64, Result<AuditRow, InvalidRow>)>;

/// All that the log gives.
pub fn rows(world: &World, options: LogOptions) -> Rows {
    let mut log = AuditLog::open(&open_session(&world.session()).unwrap(), options).unwrap();
    let mut all = Vec::new();
    log.read(&mut |id, row| {
        all.push((id, row));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Rows in words.
pub fn words(rows: &Rows) -> Vec<String> {
    let text = |path: &MergedPath| String::from_utf8_lossy(path.as_bytes()).into_owned();
    let words = rows.iter().map(|(_, row)| {
        let row = row.as_ref().unwrap();
        let to = row.path2.as_ref().map(|to| format!(" {}", text(to)));
        format!("{} {}{}", row.procedure.as_str(), text(&row.path), to.unwrap_or_default())
    });
    words.collect()
}

pub fn path(text: &str) -> MergedPath {
    MergedPath::from_user(text.as_bytes()).unwrap()
}

/// What is about a path, oldest first.
fn about(world: &World, of: &str) -> Vec<String> {
    let base = world.base();
    let opened = OpenSession::open(&world.session(), base.exists().then_some(&*base)).unwrap();
    let path = path(of);
    let now = now(&opened, &path);
    words(&rows(world, LogOptions { path: Some((path, now)), ..LogOptions::default() }))
}

/// The same where nobody knows what is there now.
fn about_unseen(world: &World, of: &str) -> Vec<String> {
    let path = Some((path(of), PathState::Unknown));
    words(&rows(world, LogOptions { path, ..LogOptions::default() }))
}

fn filtered(world: &World, filter: AuditFilter) -> Vec<String> {
    words(&rows(world, LogOptions { filter, ..LogOptions::default() }))
}

#[test]
fn all_of_it_in_both_orders_and_the_last_ones() {
    let world = World::plain();
    world.mkdir("dir").unwrap();
    world.put("dir/file", "text");
    world.remove("dir/file").unwrap();
    let all = ["MKDIR /dir", "CREATE /dir/file", "WRITE /dir/file", "REMOVE /dir/file"];
    assert_eq!(filtered(&world, AuditFilter::default()), all);
    let some =
        |last, order| words(&rows(&world, LogOptions { last, order, ..LogOptions::default() }));
    assert_eq!(some(Some(2), Order::OldestFirst), all[2..]);
    assert_eq!(some(Some(9), Order::OldestFirst), all);
    assert_eq!(some(Some(0), Order::OldestFirst), [""; 0]);
    assert_eq!(some(Some(0), Order::NewestFirst), [""; 0]);
    assert_eq!(some(Some(1), Order::NewestFirst), ["REMOVE /dir/file"]);
    let mut back = some(None, Order::NewestFirst);
    back.reverse();
    assert_eq!(back, all);
}

#[test]
fn a_long_log_comes_whole() {
    let world = World::plain();
    world
        .sql()
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3500)
             INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid)
             SELECT i, 0, '10.0.0.1:1', i % 2, 0, 'WRITE', '/' || (i % 5), i % 5 + 10 FROM n",
        )
        .unwrap();
    let ids = |options| rows(&world, options).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    let all: Vec<i64> = (1..=3500).collect();
    assert_eq!(ids(LogOptions::default()), all);
    let mut back = ids(LogOptions { order: Order::NewestFirst, ..LogOptions::default() });
    back.reverse();
    assert_eq!(back, all);
    let one = || Some((path("3"), PathState::Unknown));
    let fifth: Vec<i64> = all.iter().copied().filter(|id| id % 5 == 3).collect();
    assert_eq!(ids(LogOptions { path: one(), ..LogOptions::default() }), fifth);
    let last = LogOptions { path: one(), last: Some(300), ..LogOptions::default() };
    assert_eq!(ids(last), fifth[400..]);
    let filter = AuditFilter { uid: Some(1), ..AuditFilter::default() };
    let odd: Vec<i64> = all.iter().copied().filter(|id| id % 2 == 1).collect();
    assert_eq!(
        ids(LogOptions { filter: filter.clone(), last: Some(1200), ..LogOptions::default() }),
        odd[550..]
    );
    let both: Vec<i64> = fifth.iter().copied().filter(|id| id % 2 == 1).collect();
    assert_eq!(ids(LogOptions { filter, path: one(), ..LogOptions::default() }), both);
}

#[test]
fn filters() {
    let world = World::plain();
    world.mkdir("dir").unwrap();
    world.chmod("dir", 0o777).unwrap();
    world.tick(10);
    world.user(1000, 1000, &[]).put("dir/file", "text");
    world.tick(10);
    let mut other = world.user(0, 0, &[]);
    other.caller.client = SocketAddr::from(([0, 0, 0, 0, 0, 0xffff, 0x0a00, 0x0001], 800));
    other.remove("dir/file").unwrap();
    let none = AuditFilter::default;
    let at = |secs| Some(Time { secs: START_SECS + secs, nanos: 0 });
    let made = ["CREATE /dir/file", "WRITE /dir/file"];
    assert_eq!(filtered(&world, AuditFilter { since: at(20), ..none() }), ["REMOVE /dir/file"]);
    assert_eq!(filtered(&world, AuditFilter { since: at(1), until: at(20), ..none() }), made);
    assert_eq!(filtered(&world, AuditFilter { uid: Some(1000), ..none() }), made);
    let procedures = vec![AuditProcedure::Mkdir, AuditProcedure::Remove];
    assert_eq!(
        filtered(&world, AuditFilter { procedures, ..none() }),
        ["MKDIR /dir", "REMOVE /dir/file"]
    );
    let from = |client| filtered(&world, AuditFilter { client: Some(client), ..none() }).len();
    let machine = |text: &str| from(ChangeSource::Machine(text.parse().unwrap()));
    let socket = |text: &str| from(ChangeSource::Socket(text.parse().unwrap()));
    assert_eq!((machine("127.0.0.1"), machine("127.0.0.2"), machine("::1")), (4, 0, 0));
    assert_eq!((machine("10.0.0.1"), machine("::ffff:10.0.0.1")), (1, 1));
    assert_eq!((socket("127.0.0.1:700"), socket("127.0.0.1:70")), (4, 0));
    assert_eq!((socket("10.0.0.1:800"), socket("10.0.0.1:700")), (1, 0));
}

#[test]
fn a_file_under_its_earlier_names() {
    let world = World::plain();
    world.put("a", "text");
    world.put("other", "text");
    world.rename("a", "b").unwrap();
    world.put("a", "another");
    world.write("b", 0, b"T").unwrap();
    world.rename("b", "c").unwrap();
    let all = ["CREATE /a", "WRITE /a", "RENAME /a /b", "WRITE /b", "RENAME /b /c"];
    assert_eq!(about(&world, "c"), all);
    assert_eq!(about_unseen(&world, "c"), all);
    assert_eq!(about(&world, "b"), all, "what was there, until it left");
    let first = ["CREATE /a", "WRITE /a", "RENAME /a /b", "CREATE /a", "WRITE /a"];
    assert_eq!(about(&world, "a"), first, "both that were there");
    assert_eq!(about(&world, "never"), [""; 0]);
}

#[test]
fn renames_of_directories_above() {
    let world = World::new("base/sub/file \"text\"\n");
    world.mkdir("d").unwrap();
    world.put("d/f", "text");
    world.put("d/g", "text");
    world.rename("d", "e").unwrap();
    world.mkdir("d").unwrap();
    world.put("d/f", "another");
    world.mkdir("top").unwrap();
    world.rename("e", "top/e").unwrap();
    world.write("top/e/f", 0, b"T").unwrap();
    let all = ["CREATE /d/f", "WRITE /d/f", "RENAME /d /e", "RENAME /e /top/e", "WRITE /top/e/f"];
    assert_eq!(about(&world, "top/e/f"), all);
    assert_eq!(about_unseen(&world, "top/e/f"), all);
    assert_eq!(
        about(&world, "d/f"),
        ["CREATE /d/f", "WRITE /d/f", "RENAME /d /e", "CREATE /d/f", "WRITE /d/f"]
    );
    world.rename("base", "moved").unwrap();
    world.rename("moved/sub", "moved/below").unwrap();
    world.chmod("moved/below/file", 0o600).unwrap();
    let moved =
        ["RENAME /base /moved", "RENAME /moved/sub /moved/below", "SETATTR /moved/below/file"];
    assert_eq!(about(&world, "moved/below/file"), moved);
    assert_eq!(about(&world, "base/sub/file"), moved[..1]);
}

#[test]
fn renames_before_it_was_there_are_of_no_interest() {
    let world = World::plain();
    world.mkdir("early").unwrap();
    world.rename("early", "e").unwrap();
    world.put("e/swap", "text");
    world.rename("e/swap", "file").unwrap();
    let all = ["CREATE /e/swap", "WRITE /e/swap", "RENAME /e/swap /file"];
    assert_eq!(about(&world, "file"), all);
    world.put("e/made", "text");
    assert_eq!(about(&world, "e/made"), ["CREATE /e/made", "WRITE /e/made"]);
    world.remove("e/made").unwrap();
    world.rmdir("e").unwrap();
    world.mkdir("d").unwrap();
    world.put("d/f", "text");
    world.rename("d", "e").unwrap();
    assert_eq!(about(&world, "e/f"), ["CREATE /d/f", "WRITE /d/f", "RENAME /d /e"]);
    assert_eq!(about(&world, "e/never"), [""; 0]);
}

#[test]
fn a_path_that_is_gone() {
    let world = World::plain();
    world.mkdir("d").unwrap();
    world.put("d/a", "text");
    world.rename("d/a", "d/b").unwrap();
    world.remove("d/b").unwrap();
    let all = ["CREATE /d/a", "WRITE /d/a", "RENAME /d/a /d/b", "REMOVE /d/b"];
    assert_eq!(about(&world, "d/b"), all);
    assert_eq!(about_unseen(&world, "d/b"), all);
    assert_eq!(about(&world, "d/a"), all[..3]);
    world.rmdir("d").unwrap();
    assert_eq!(about(&world, "d/b"), all);
    assert_eq!(about(&world, "d"), [&["MKDIR /d"][..], &all, &["RMDIR /d"]].concat(),);
}

#[test]
fn a_file_that_is_saved_by_rename() {
    let world = World::new("file \"text\"\n");
    world.write("file", 0, b"T").unwrap();
    for save in ["file", "unlike", "file"] {
        world.put("swap", save);
        world.rename("swap", save).unwrap();
    }
    let save = ["CREATE /swap", "WRITE /swap", "RENAME /swap /file"];
    let all = [&["WRITE /file"][..], &save, &save].concat();
    assert_eq!(about(&world, "file"), all);
    assert_eq!(about_unseen(&world, "file"), all);
}

#[test]
fn what_has_several_names() {
    let world = World::new("one \"text\"\ntwo = one\n");
    world.put("a", "text");
    world.link("a", "b").unwrap();
    world.write("b", 0, b"T").unwrap();
    let named = about(&world, "b");
    assert_eq!(named, about(&world, "a"));
    assert_eq!(named.len(), 4, "{named:?}");
    world.remove("a").unwrap();
    assert_eq!(about(&world, "b").len(), 5);
    world.write("one", 0, b"T").unwrap();
    world.write("two", 0, b"T").unwrap();
    assert_eq!(about(&world, "one").len(), 2);
    assert_eq!(about(&world, "two"), about(&world, "one"));
}

#[test]
fn a_directory_with_all_below_it() {
    let world = World::plain();
    world.mkdir("dir").unwrap();
    world.put("director", "not below dir");
    world.put("dir/file", "text");
    world.rename("director", "dir/in").unwrap();
    world.rename("dir/file", "out").unwrap();
    world.write("out", 0, b"T").unwrap();
    world.rename("dir", "moved").unwrap();
    let all = [
        "MKDIR /dir",
        "CREATE /dir/file",
        "WRITE /dir/file",
        "RENAME /director /dir/in",
        "RENAME /dir/file /out",
        "RENAME /dir /moved",
    ];
    assert_eq!(about(&world, "moved"), all);
    assert_eq!(about(&world, "/").len(), 9);
}

#[test]
fn rows_that_cannot_be_read() {
    let world = World::plain();
    world.put("file", "text");
    let junk = |columns: &str, values: &str| {
        let sql = format!(
            "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, fileid, {columns})
             VALUES (1, 0, '[::1]:7', 0, 0, 9, {values})"
        );
        world.sql().execute_batch(&sql).unwrap();
    };
    junk("procedure, path", "'BOGUS', '/file'");
    junk("procedure, path", "'WRITE', 'no path'");
    junk("procedure, path", "'WRITE', '/a//b'");
    junk("procedure, path", "'RENAME', '/file'");
    junk("procedure, path, path2", "'WRITE', '/file', '/other'");
    junk("procedure, path, offset", "'WRITE', '/file', -1");
    junk("procedure, path", "'WRITE', CAST('/file' AS BLOB)");
    let change = |set: &str| {
        junk("procedure, path", "'WRITE', '/file'");
        let sql = "UPDATE acetate_op SET {} WHERE id = (SELECT max(id) FROM acetate_op)";
        world.sql().execute_batch(&sql.replace("{}", set)).unwrap();
    };
    for set in [
        "client = 'localhost'",
        "uid = -1",
        "time = 'now'",
        "time_nsec = 1000000000",
        "fileid = x'00'",
    ] {
        change(set);
    }
    let all = rows(&world, LogOptions::default());
    let odd = |rows: &Rows| -> Vec<&'static str> {
        rows.iter().filter_map(|(_, row)| Some(row.as_ref().err()?.column)).collect()
    };
    let columns = [
        "procedure",
        "path",
        "path",
        "path2",
        "path2",
        "offset",
        "client",
        "uid",
        "time",
        "time_nsec",
        "fileid",
    ];
    assert_eq!(odd(&all), columns);
    assert_eq!(all.len(), columns.len() + 3);
    let of_file = Some((path("file"), PathState::Unknown));
    let of_file = rows(&world, LogOptions { path: of_file, ..LogOptions::default() });
    assert_eq!(of_file.len(), all.len(), "by name, or by number");
    let elsewhere = Some((path("elsewhere"), PathState::Unknown));
    let elsewhere = rows(&world, LogOptions { path: elsewhere, ..LogOptions::default() });
    let unknown = ["procedure", "path", "path2", "path2", "fileid"];
    assert_eq!(odd(&elsewhere), unknown, "may be about any path");
}

#[test]
fn following() {
    let world = World::plain();
    world.put("dir-before", "text");
    let session = open_session(&world.session()).unwrap();
    let mut all = AuditLog::open(&session, LogOptions::default()).unwrap();
    let path = Some((path("dir/file"), PathState::Unknown));
    let filter = AuditFilter {
        procedures: vec![AuditProcedure::Write, AuditProcedure::Rename],
        ..Default::default()
    };
    let mut one =
        AuditLog::open(&session, LogOptions { path, filter, ..LogOptions::default() }).unwrap();
    for log in [&mut all, &mut one] {
        log.read(&mut |_, _| ControlFlow::Continue(())).unwrap();
    }
    let next = |log: &mut AuditLog| {
        let mut rows = Vec::new();
        log.read_on(&mut |id, row| {
            rows.push((id, row));
            ControlFlow::Continue(())
        })
        .unwrap();
        words(&rows)
    };
    assert_eq!(next(&mut all), [""; 0]);
    world.mkdir("dir").unwrap();
    world.put("dir/file", "text");
    world.put("dir/other", "text");
    world.link("dir/file", "alias").unwrap();
    assert_eq!(next(&mut all).len(), 6);
    assert_eq!(next(&mut all), [""; 0]);
    assert_eq!(next(&mut one), ["WRITE /dir/file"]);
    world.rename("dir/other", "dir/file").unwrap();
    world.write("alias", 0, b"not there any more").unwrap();
    world.rename("dir", "gone").unwrap();
    world.write("gone/file", 0, b"nor this").unwrap();
    assert_eq!(next(&mut one), ["RENAME /dir/other /dir/file", "RENAME /dir /gone"]);
    assert_eq!(next(&mut all).len(), 4);
}

#[test]
fn a_session_without_an_audit_log() {
    let mut world = World::plain();
    world.put("file", "text");
    world.close();
    world.sql().execute_batch("DROP TABLE acetate_op").unwrap();
    let session = open_session(&world.session()).unwrap();
    let error = AuditLog::open(&session, LogOptions::default()).err().unwrap();
    assert!(matches!(error, InspectError::NoAudit { .. }), "{error}");
    assert!(error.hint().is_some());
    drop(session);
    world.open_again();
}

#[test]
fn a_session_of_an_earlier_version() {
    let mut world = World::plain();
    world.put("file", "text");
    world.close();
    world.sql().execute_batch("ALTER TABLE acetate_op DROP COLUMN call").unwrap();
    assert_eq!(filtered(&world, AuditFilter::default()), ["CREATE /file", "WRITE /file"]);
    world.open_again();
}

#[test]
fn rows_say_all_that_was_written() {
    let world = World::plain();
    let user = world.user(1000, 100, &[]);
    world.chmod("", 0o777).unwrap();
    let made = user.create(b"\xff", CreateHow::Guarded(Default::default())).unwrap();
    user.write(b"\xff", 5, b"text").unwrap();
    user.truncate(b"\xff", 7).unwrap();
    let rows = rows(&world, LogOptions::default());
    let row = |at: usize| rows[at].1.clone().unwrap();
    let FileId(id) = made.attr.fileid;
    assert_eq!((row(1).fileid, row(1).path.as_bytes()), (FileId(id), &b"/\xff"[..]));
    assert_eq!((row(2).offset, row(2).length), (Some(5), Some(4)));
    assert_eq!((row(3).offset, row(3).length), (Some(7), None));
    assert_eq!((row(2).uid, row(2).gid, row(2).time.secs), (1000, 100, START_SECS));
    assert_eq!(row(2).client, "127.0.0.1:700".parse().unwrap());
}
