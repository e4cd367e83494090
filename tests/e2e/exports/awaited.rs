//! Exports that are not opened at the start, whose sessions are on a filesystem that is not
//! mounted.

use std::fs;
use std::time::{Duration, Instant};

use acetate::workspace::exports::OPEN_AT_START;
use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use super::Site;
use super::on_demand::{BASE, exports};
use crate::support::hanging_mount::HangingMount;
use crate::support::skip::skip;

/// Exports of which the last is not opened at the start, and has its session in `apart`.
fn with_last_apart() -> String {
    let name = format!("\"{OPEN_AT_START}.db\"");
    exports("", OPEN_AT_START + 1).replace(&name, "\"apart/last.db\"")
}

/// A site whose last export has a file; its handle, and one like it that no export gave out.
fn with_a_file() -> (Site, nfs_fh3, nfs_fh3) {
    with_a_file_of(&with_last_apart(), OPEN_AT_START)
}

/// The same of these exports, by the number of the last one.
fn with_a_file_of(exports: &str, last: usize) -> (Site, nfs_fh3, nfs_fh3) {
    let mut site = Site::start_lenient(BASE, exports);
    fs::create_dir(site.path("apart")).unwrap();
    let mut peer = site.peer(&format!("/{last}"));
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    drop(peer);
    site.stop();
    let mut bytes = file.data.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    (site, file, nfs_fh3 { data: Opaque::owned(bytes) })
}

/// What a client of another export gets with a handle.
fn read(site: &Site, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
    let mut peer = site.peer("/0");
    site.wait(peer.read(file, 0, 100))
}

/// The first answer that is not JUKEBOX.
fn settled(site: &Site, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match read(site, file) {
            Err(nfsstat3::NFS3ERR_JUKEBOX) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100));
            }
            answer => return answer,
        }
    }
}

const LATER: Result<Vec<u8>, nfsstat3> = Err(nfsstat3::NFS3ERR_JUKEBOX);
const STALE: Result<Vec<u8>, nfsstat3> = Err(nfsstat3::NFS3ERR_STALE);

#[test]
fn handles_wait_for_a_filesystem_that_is_mounted_later() {
    let (mut site, file, junk) = with_a_file();
    let (dir, away) = (site.path("apart"), site.path("away"));
    for has_mount_point in [true, false] {
        fs::rename(&dir, &away).unwrap();
        if has_mount_point {
            fs::create_dir(&dir).unwrap();
        }
        site.run();
        assert_eq!((read(&site, &file), read(&site, &junk)), (LATER, LATER));
        assert_eq!(site.open_sessions().len(), OPEN_AT_START, "junk opens nothing");
        if has_mount_point {
            fs::remove_dir(&dir).unwrap();
        }
        fs::rename(&away, &dir).unwrap();
        // The session is found without a mount, and without opening it.
        assert_eq!(settled(&site, &junk), STALE);
        assert_eq!(site.open_sessions().len(), OPEN_AT_START);
        assert_eq!(settled(&site, &file), Ok(b"kept".to_vec()));
        site.stop();
    }
}

#[test]
fn a_directory_that_hangs_hides_no_session_that_is_mounted_later() {
    let last = OPEN_AT_START + 1;
    let text = exports("", last + 1)
        .replace(&format!("\"{OPEN_AT_START}.db\""), "\"stuck/never.db\"")
        .replace(&format!("\"{last}.db\""), "\"apart/last.db\"");
    let (mut site, file, _) = with_a_file_of(&text, last);
    let (dir, away) = (site.path("apart"), site.path("away"));
    fs::rename(&dir, &away).unwrap();
    fs::create_dir(site.path("stuck")).unwrap();
    site.run();
    let Some(hanging) = HangingMount::over(&site.path("stuck")) else {
        return skip("FUSE cannot be mounted");
    };
    assert_eq!(read(&site, &file), LATER);
    fs::rename(&away, &dir).unwrap();
    assert_eq!(settled(&site, &file), Ok(b"kept".to_vec()));
    drop(hanging);
    site.stop();
}

#[test]
fn a_mount_without_the_session_ends_the_wait() {
    let (mut site, file, _) = with_a_file();
    let (dir, away) = (site.path("apart"), site.path("away"));
    fs::rename(&dir, site.path("gone")).unwrap();
    fs::create_dir(&away).unwrap();
    fs::create_dir(&dir).unwrap();
    site.run();
    assert_eq!(read(&site, &file), LATER);
    // Sessions that are made in the mount point say nothing of what is below.
    fs::write(dir.join("other.db"), "").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(read(&site, &file), LATER);
    fs::write(away.join("other.db"), "").unwrap();
    fs::rename(&dir, site.path("before")).unwrap();
    fs::rename(&away, &dir).unwrap();
    assert_eq!(settled(&site, &file), STALE);
    site.stop();
}

#[test]
fn a_new_export_beside_other_sessions_keeps_no_handle_waiting() {
    let (mut site, file, junk) = with_a_file();
    fs::rename(site.path("apart"), site.path("away")).unwrap();
    fs::create_dir(site.path("apart")).unwrap();
    fs::write(site.path("apart/other.db"), "").unwrap();
    site.run();
    assert_eq!((read(&site, &file), read(&site, &junk)), (STALE, STALE));
    // A mount makes it, and one that is made is awaited no more.
    fs::remove_file(site.path("apart/other.db")).unwrap();
    site.reload().unwrap();
    assert_eq!(read(&site, &junk), LATER);
    site.peer(&format!("/{OPEN_AT_START}"));
    assert_eq!(read(&site, &junk), STALE);
    site.stop();
}
