//! A session file that is removed or replaced while it is served.

use std::fs;

use nfs3_client::nfs3_types::nfs3::nfsstat3;
use tempfile::tempdir;

use super::program::{Serving, run};
use crate::e2e::peer::Peer;

#[test]
fn the_server_says_so_and_takes_no_more_changes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for replaced in [false, true] {
        let dir = tempdir().unwrap();
        let mut server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
        let address = server.addresses[0];
        let mut peer = runtime.block_on(Peer::mount(address, "/", 0, 0)).unwrap();
        let root = peer.root.clone();
        let made = runtime.block_on(peer.mkdir(&root, "before")).unwrap();
        fs::rename(dir.path().join("s.db"), dir.path().join("away.db")).unwrap();
        if replaced {
            assert!(run(dir.path(), &["init", "new.db"]).status.success());
            fs::rename(dir.path().join("new.db"), dir.path().join("s.db")).unwrap();
        }
        let said = server.line();
        let what = if replaced { "replaced by another file" } else { "removed" };
        assert!(said.contains("ERROR") && said.contains(what), "{said}");
        let refused = runtime.block_on(peer.mkdir(&root, "after")).map(drop);
        assert_eq!(refused, Err(nfsstat3::NFS3ERR_ROFS));
        runtime.block_on(peer.getattr(&made)).unwrap();
    }
}
