//! Locks on what only privileged ports reach.

use std::sync::Arc;

use acetate::server::RpcProgram;
use acetate::vfs::Caller;
use acetate::wire::xdr::Encoder;
use acetate::wire::{mount3, nlm4};

use super::Site;
use crate::support::nlm::{LOCK, UNLOCK, lock_args, unlock_args};

const EXPORTS: &str = r#"
    [[export]]
    path = "/privileged"
      [[export.mount]]
      at = "/"
      session = "privileged.db"
    [[export]]
    path = "/open"
    options = ["insecure"]
      [[export.mount]]
      at = "/"
      session = "open.db"
"#;

const MNT: u32 = 1;
const FREE_ALL: u32 = 23;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const FAILED: u32 = 9;

/// The client's port of its kernel, and one that each of its programs can have.
const PRIVILEGED: u16 = 700;
const COMMON: u16 = 5000;

/// The programs of the server, as one machine calls them.
struct Called(Vec<Arc<dyn RpcProgram>>);

impl Called {
    async fn call(&self, port: u16, program: u32, procedure: u32, args: Encoder) -> Vec<u8> {
        let caller = Caller {
            client: ([127, 0, 0, 1], port).into(),
            is_owner: false,
            ..Caller::owner(0, 0)
        };
        let program = self.0.iter().find(|known| known.number() == program).unwrap();
        let reply = program.call(&caller, procedure, args.into_bytes()).await.unwrap();
        reply.into_bytes().to_vec()
    }

    /// The handle of an export's root.
    async fn root(&self, path: &[u8]) -> Vec<u8> {
        let mut args = Encoder::new();
        args.put_opaque(path);
        let reply = self.call(PRIVILEGED, mount3::PROGRAM, MNT, args).await;
        let length = u32::from_be_bytes(*reply[4..].first_chunk().unwrap());
        reply[8..][..length.try_into().unwrap()].to_vec()
    }

    /// LOCK, which does not wait; the status.
    async fn lock(&self, port: u16, svid: u32, state: u32, file: &[u8]) -> u32 {
        status(&self.call(port, nlm4::PROGRAM, LOCK, lock_args(false, file, svid, state)).await)
    }

    async fn unlock(&self, port: u16, svid: u32, file: &[u8]) -> u32 {
        status(&self.call(port, nlm4::PROGRAM, UNLOCK, unlock_args(file, svid)).await)
    }

    /// The client says that it has none any more.
    async fn free_all(&self, port: u16) {
        let mut args = Encoder::new();
        args.put_opaque(b"client");
        args.put_u32(5);
        self.call(port, nlm4::PROGRAM, FREE_ALL, args).await;
    }
}

fn status(reply: &[u8]) -> u32 {
    u32::from_be_bytes(*reply.last_chunk().unwrap())
}

#[test]
fn they_are_given_up_from_privileged_ports_alone() {
    let mut site = Site::start("", EXPORTS);
    let called = Called(site.running.as_ref().unwrap().served.programs());
    site.wait(async {
        let (root, open) = (called.root(b"/privileged").await, called.root(b"/open").await);
        assert_eq!(called.lock(PRIVILEGED, 1, 3, &root).await, GRANTED);
        assert_eq!(called.lock(COMMON, 1, 3, &open).await, GRANTED);

        // It gives up what it has: nothing.
        assert_eq!(called.unlock(COMMON, 1, &root).await, GRANTED);
        assert_eq!(called.lock(COMMON, 2, 3, &root).await, FAILED);
        assert_eq!(called.lock(PRIVILEGED, 2, 3, &root).await, DENIED, "UNLOCK");

        // A restart that any program can claim, where any can lock: that is another client.
        assert_eq!(called.lock(COMMON, 2, 5, &open).await, GRANTED);
        assert_eq!(called.lock(PRIVILEGED, 2, 3, &root).await, DENIED, "a restart");

        called.free_all(COMMON).await;
        assert_eq!(called.lock(COMMON, 3, 5, &open).await, GRANTED);
        assert_eq!(called.lock(PRIVILEGED, 2, 3, &root).await, DENIED, "FREE_ALL");
        called.free_all(PRIVILEGED).await;
        assert_eq!(called.lock(PRIVILEGED, 2, 3, &root).await, GRANTED);
    });
    site.stop();
}
