//! Serving a workspace to NFS clients, in this process.

use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Workspace;
use super::error::Result;
use crate::server::{Listeners, Server, ServerOptions};

/// A workspace that is being served; dropping this stops the server.
pub struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
}

impl Workspace {
    /// Serves the merged tree at an address; port 0 selects a free port. The workspace stays
    /// usable, and clients see its changes.
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
    /// On systems where clients use no privileged port, the address is the only access control: see
    /// docs/SECURITY.md.
    ///
    /// # Errors
    /// Binding the address fails.
    pub fn serve(&self, address: SocketAddr) -> Result<Serving> {
        self.serve_with(address, ServerOptions::default())
    }

    /// As [`Workspace::serve`], with other limits, or for clients at any port.
    ///
    /// # Errors
    /// Binding the address fails.
    pub fn serve_with(&self, address: SocketAddr, options: ServerOptions) -> Result<Serving> {
        let listeners = self.runtime.block_on(Listeners::bind(&[address]))?;
        let address = listeners.addresses().first().copied().unwrap_or(address);
        let programs = self.layers.programs();
        let server = Server::new(listeners, programs, options);
        let (stop, stopped) = oneshot::channel();
        let running = self.runtime.spawn(server.run(async {
            // A dropped sender stops the server, too.
            let _said = stopped.await;
        }));
        let runtime = self.runtime.handle().clone();
        Ok(Serving { address, stop: Some(stop), running: Some(running), runtime })
    }
}

impl Serving {
    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server, after replies to all current requests.
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
