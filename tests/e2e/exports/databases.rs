//! Exports whose sessions are in a database: opened and closed on demand, lost and taken back.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use acetate::delta::postgres::{SessionRow, SessionUrl, connect, find};
use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use tokio::runtime::Handle;
use tokio_postgres::Client;

use super::Site;
use super::on_demand::IDLE;
use crate::e2e::peer::Peer;
use crate::support::database::server::any;

const OPTIONS: &str = "options = [\"insecure\", \"no_root_squash\"]";

/// The exports `/0`, `/1` and so on, each of a session.
fn exports(head: &str, sessions: &[&str]) -> String {
    let mut text = format!("{head}\n");
    for (number, session) in sessions.iter().enumerate() {
        text += &format!(
            "[[export]]\npath = \"/{number}\"\n{OPTIONS}\n\
             [[export.mount]]\nat = \"/\"\nsession = \"{session}\"\n"
        );
    }
    text
}

fn serve(head: &str, sessions: &[&SessionUrl]) -> Site {
    let sessions: Vec<String> = sessions.iter().map(ToString::to_string).collect();
    let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
    Site::start_lenient("", &exports(head, &sessions))
}

fn row(url: &SessionUrl) -> SessionRow {
    any().with(|client, runtime| runtime.block_on(find(client, url)).unwrap())
}

/// Another server takes the session, and is silent from then on.
fn steal(url: &SessionUrl) {
    let (schema, name) = (any().schema(), &url.name);
    any().run(&format!(
        "UPDATE {schema}.session SET epoch = epoch + 1, beat = beat + 1, holder = 'thief', \
         address = 'elsewhere' WHERE name = '{name}'"
    ));
}

/// The first answer that is not JUKEBOX.
fn settled(site: &Site, peer: &mut Peer, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match site.wait(peer.read(file, 0, 100)) {
            Err(nfsstat3::NFS3ERR_JUKEBOX) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            answer => return answer,
        }
    }
}

fn put(site: &Site, peer: &mut Peer, name: &str, content: &str) -> nfs_fh3 {
    let root = peer.root.clone();
    site.wait(peer.put(&root, name, content))
}

fn kept(text: &str) -> Result<Vec<u8>, nfsstat3> {
    Ok(text.as_bytes().to_vec())
}

#[test]
fn the_first_mount_opens_a_session_and_an_idle_one_is_given_back() {
    let url = any().new_url();
    let mut site = serve(IDLE, &[&url]);
    assert_eq!(site.open_sessions(), [""; 0], "nothing is opened at the start");
    let mut peer = site.peer("/0");
    let file = put(&site, &mut peer, "file", "kept");
    let held = row(&url).lease;
    assert!(held.holder.is_some() && held.address.as_deref() == Some("here"), "{held:?}");
    site.wait_until_idle();
    let deadline = Instant::now() + Duration::from_secs(10);
    while row(&url).lease.holder.is_some() {
        assert!(Instant::now() < deadline, "it keeps the lease");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(settled(&site, &mut peer, &file), kept("kept"), "the next call opens it");
    assert!(row(&url).lease.holder.is_some());
    site.stop();
    assert_eq!(row(&url).lease.holder, None, "and a stop gives it back");
}

#[test]
fn another_server_has_the_same_handles() {
    let (one, two) = (any().new_url(), any().new_url());
    let mut first = serve("", &[&one, &two]);
    let files = ["/0", "/1"].map(|path| put(&first, &mut first.peer(path), "file", path));
    let mut second = serve("", &[&one, &two]);
    let root = first.peer("/0").root;
    first.stop();
    let mut peer = second.peer("/1");
    assert_eq!(peer.root, second.peer("/1").root);
    for (path, file) in ["/0", "/1"].iter().zip(&files) {
        // Of an export that this server has never opened.
        assert_eq!(settled(&second, &mut peer, file), kept(path));
    }
    assert_eq!(second.peer("/0").root, root);
    second.stop();
}

#[test]
fn a_session_that_another_server_made_since_is_known_after_that_server_died() {
    let (url, other) = (any().new_url(), any().new_url());
    let mut second = serve("", &[&url, &other]);
    let mut first = serve("", &[&url]);
    let file = put(&first, &mut first.peer("/0"), "file", "kept");
    let mut peer = second.peer("/1");
    let answer = second.wait(peer.read(&file, 0, 100));
    assert_eq!(answer, Err(nfsstat3::NFS3ERR_JUKEBOX), "never stale");
    first.stop();
    assert_eq!(settled(&second, &mut peer, &file), kept("kept"));
    second.stop();
}

#[test]
fn a_server_that_is_alive_keeps_the_session_and_the_next_one_gets_it_when_it_ends() {
    let url = any().new_url();
    let mut first = serve("", &[&url]);
    let file = put(&first, &mut first.peer("/0"), "file", "kept");
    let other = any().new_url();
    let mut second = serve("", &[&url, &other]);
    assert!(second.mount("/0", 0, 0).is_none(), "MOUNT knows no later");
    let mut peer = second.peer("/1");
    let answer = second.wait(peer.read(&file, 0, 100));
    assert_eq!(answer, Err(nfsstat3::NFS3ERR_JUKEBOX));
    assert_eq!(first.wait(first.peer("/0").read(&file, 0, 100)), kept("kept"));
    first.stop();
    assert_eq!(settled(&second, &mut peer, &file), kept("kept"));
    second.stop();
}

#[test]
fn a_lost_session_waits_until_it_is_free_and_the_others_are_served() {
    let (lost, other) = (any().new_url(), any().new_url());
    let mut site = serve("", &[&lost, &other]);
    let (mut peer, mut beside) = (site.peer("/0"), site.peer("/1"));
    let file = put(&site, &mut peer, "file", "kept");
    let file_beside = put(&site, &mut beside, "file", "beside");
    let epoch = row(&lost).lease.epoch;
    steal(&lost);
    let stolen = Instant::now();
    // The next renewal says so; a change finds out at once.
    let root = peer.root.clone();
    let made = site.wait(peer.mkdir(&root, "late"));
    assert_eq!(made.unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Err(nfsstat3::NFS3ERR_JUKEBOX));
    assert_eq!(site.wait(beside.read(&file_beside, 0, 100)), kept("beside"));
    put(&site, &mut beside, "more", "more");
    assert_eq!(settled(&site, &mut peer, &file), kept("kept"));
    assert!(stolen.elapsed() >= row(&lost).lease.term, "the other server might have been alive");
    assert_eq!(row(&lost).lease.epoch, epoch + 2, "it was taken again");
    site.wait(peer.mkdir(&root, "late")).expect("it was not made");
    let root = peer.root.clone();
    assert_eq!(site.wait(peer.ls(&root)), ["file", "late"]);
    site.stop();
}

#[test]
fn calls_wait_while_the_database_does_and_the_server_is_well() {
    let (url, other) = (any().new_url(), any().new_url());
    let mut site = serve("", &[&url, &other]);
    let (mut peer, mut writer, mut beside) = (site.peer("/0"), site.peer("/0"), site.peer("/1"));
    let file = put(&site, &mut peer, "file", "kept");
    let file_beside = put(&site, &mut beside, "file", "beside");
    let (root, epoch) = (peer.root.clone(), row(&url).lease.epoch);
    let connected = |_: &mut Client, runtime: &Handle| {
        runtime.block_on(connect(&url.connection, runtime)).unwrap()
    };
    let slow = any().with(connected);
    let run = |sql: &str| any().with(|_, it| it.block_on(slow.batch_execute(sql)).unwrap());
    let (schema, name) = (any().schema(), &url.name);
    run(&format!("BEGIN; UPDATE {schema}.session SET beat = beat + 1 WHERE name = '{name}'"));
    let health = || site.running.as_ref().unwrap().served.shown_sessions().health();
    let looks = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        // Answered until the lease ends, and not after that.
        while peer.read(&file, 0, 100).await != Err(nfsstat3::NFS3ERR_JUKEBOX) {
            assert!(Instant::now() < deadline, "it answers without a lease");
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(health().stuck, 0, "the writer waits for the database");
        // A renewal of both may have waited for the first.
        while beside.read(&file_beside, 0, 100).await != kept("beside") {
            assert!(Instant::now() < deadline, "one session stalls another");
        }
        run("ROLLBACK");
    };
    let (made, ()) = site.wait(async { tokio::join!(writer.mkdir(&root, "waits"), looks) });
    made.expect("it was made");
    assert_eq!(settled(&site, &mut peer, &file), kept("kept"));
    assert_eq!(site.wait(peer.ls(&root)), ["file", "waits"]);
    assert_eq!(row(&url).lease.epoch, epoch, "the session was not lost");
    site.stop();
}

#[test]
fn exports_that_name_a_session_in_two_ways_share_it() {
    let url = any().new_url();
    let (one, two) = (url.to_string(), format!("{url}&connect_timeout=7"));
    let mut site = Site::start_lenient("", &exports(IDLE, &[&one, &two]));
    let (mut first, mut second) = (site.peer("/0"), site.peer("/1"));
    put(&site, &mut first, "file", "of both");
    let root = second.root.clone();
    assert_eq!(site.wait(second.ls(&root)), ["file"]);
    assert_eq!(site.open_sessions().len(), 1);
    assert_ne!(first.root, second.root, "each export has handles of its own");
    steal(&url);
    make_until_taken(&site, &mut second);
    let root = first.root.clone();
    assert_eq!(site.wait(first.ls(&root)), ["again", "file"]);
    site.stop();
    assert_eq!(row(&url).lease.holder, None);
}

/// Makes a directory once the session is back.
fn make_until_taken(site: &Site, peer: &mut Peer) {
    let (root, deadline) = (peer.root.clone(), Instant::now() + Duration::from_secs(60));
    while let Err(error) = site.wait(peer.mkdir(&root, "again")) {
        assert_eq!(error, nfsstat3::NFS3ERR_JUKEBOX);
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_database_that_does_not_answer_delays_nothing_else() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = any().through(silent.local_addr().unwrap().port()).to_string();
    let begun = Instant::now();
    let mut site = Site::start_lenient("", &exports("", &[&away, "1.db"]));
    let mut peer = site.peer("/1");
    let file = put(&site, &mut peer, "file", "kept");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(site.mount("/0", 0, 0).is_none());
    let mut unknown = file.data.to_vec();
    *unknown.last_mut().unwrap() ^= 1;
    let unknown = nfs_fh3 { data: Opaque::owned(unknown) };
    let answer = site.wait(peer.read(&unknown, 0, 100));
    assert_eq!(answer, Err(nfsstat3::NFS3ERR_JUKEBOX), "it may be of the other export");
    let begun = Instant::now();
    site.reload().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(site.wait(peer.read(&file, 0, 100)), kept("kept"));
    site.stop();
}

#[test]
fn a_reload_keeps_the_sessions_of_exports_that_stay_and_gives_back_the_others() {
    let (stays, goes) = (any().new_url(), any().new_url());
    let mut site = serve("", &[&stays, &goes]);
    let (mut peer, mut gone) = (site.peer("/0"), site.peer("/1"));
    let file = put(&site, &mut peer, "file", "kept");
    let gone_file = put(&site, &mut gone, "file", "gone");
    let epoch = row(&stays).lease.epoch;
    site.say(&exports("", &[&stays.to_string()]));
    site.reload().unwrap();
    assert_eq!(site.wait(peer.read(&file, 0, 100)), kept("kept"));
    assert_eq!(row(&stays).lease.epoch, epoch, "it was not given back");
    assert_eq!(site.wait(gone.read(&gone_file, 0, 100)), Err(nfsstat3::NFS3ERR_STALE));
    assert_eq!(row(&goes).lease.holder, None);
    site.stop();
}

#[test]
fn a_session_that_mounts_only_read_is_not_made() {
    let url = any().new_url();
    let read_only =
        exports("", &[&url.to_string()]).replace("\"insecure\"", "\"ro\", \"insecure\"");
    let mut site = Site::start_lenient("", &read_only);
    assert!(site.mount("/0", 0, 0).is_none());
    site.stop();
    let mut site = serve("", &[&url]);
    let file = put(&site, &mut site.peer("/0"), "file", "kept");
    site.stop();
    let mut site = Site::start_lenient("", &read_only);
    let mut peer = site.peer("/0");
    assert_eq!(settled(&site, &mut peer, &file), kept("kept"));
    let root = peer.root.clone();
    let refused = site.wait(peer.mkdir(&root, "new")).unwrap_err();
    assert_eq!(refused, nfsstat3::NFS3ERR_ROFS);
    site.stop();
}
