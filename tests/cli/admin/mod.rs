//! `serve --admin` and `--log-format json`, with the real program.

mod calls;
mod database;
mod health;
mod lines;
mod storage;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::program::Serving;
use crate::e2e::peer::Peer;
use crate::support::fixture;

/// A server with figures.
struct Watched {
    dir: TempDir,
    server: Serving,
    admin: SocketAddr,
    runtime: Runtime,
}

impl Watched {
    /// Serves `s.db` over a base with these objects (see [`fixture`]), with more options.
    fn start(base: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        fixture::build(&dir.path().join("base"), base);
        let args = ["s.db", "--base", "base", "--insecure"];
        Self::start_in(dir, &[&args[..], more].concat())
    }

    /// Serves in this directory.
    fn start_in(dir: TempDir, args: &[&str]) -> Self {
        let args = [args, &["--admin", "127.0.0.1:0"]].concat();
        let server = Serving::start(dir.path(), 1, &args);
        let prefix = "figures at http://";
        let line = server.said.iter().find_map(|line| line.strip_prefix(prefix));
        let admin = line.unwrap().strip_suffix("/metrics").unwrap().parse().unwrap();
        Self { dir, server, admin, runtime: Runtime::new().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses[0]
    }

    /// The superuser's connection.
    fn peer(&self) -> Peer {
        self.runtime.block_on(Peer::connect(self.address(), 0, 0))
    }
}
