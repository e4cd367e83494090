//! Serving a workspace to NFS clients, in this process.

use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Workspace;
use super::error::Result;
use crate::server::{Listeners, Server, ServerOptions};

/// A workspace that is being served; dropped, it stops.
pub struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
}

impl Workspace {
    /// Serves the merged tree at an address; port 0 takes a free one. The workspace goes on
    /// meanwhile: clients see what it changes.
    ///
    /// ```
    /// # use acetate::workspace::Workspace;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let mut work = Workspace::create(&dir.path().join("work.db"), None)?;
    /// let serving = work.serve("127.0.0.1:0".parse()?)?;
    /// println!("mount -t nfs -o vers=3,tcp,nolock,port={0},mountport={0} 127.0.0.1:/ /mnt",
    ///     serving.address().port());
    /// work.write("hello", "seen by clients\n".as_bytes())?;
    /// serving.stop();
    /// work.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Where clients need no privileged port, only what listens at the address keeps others
    /// out: see docs/SECURITY.md.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn serve(&self, address: SocketAddr) -> Result<Serving> {
        self.serve_with(address, ServerOptions::default())
    }

    /// [`Workspace::serve`] with limits of one's own, or for clients at any port.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn serve_with(&self, address: SocketAddr, options: ServerOptions) -> Result<Serving> {
        let listeners = self.runtime.block_on(Listeners::bind(&[address]))?;
        let address = listeners.addresses().first().copied().unwrap_or(address);
        let programs = self.layers.programs();
        let server = Server::new(listeners, programs, options);
        let (stop, stopped) = oneshot::channel();
        let running = self.runtime.spawn(server.run(async {
            // Dropped without a word, it stops as well.
            let _said = stopped.await;
        }));
        let runtime = self.runtime.handle().clone();
        Ok(Serving { address, stop: Some(stop), running: Some(running), runtime })
    }
}

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops; returns when all requests are answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            let _ended = self.runtime.block_on(running);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}
