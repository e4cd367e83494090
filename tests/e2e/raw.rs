//! Calls byte by byte, for what no decent client sends.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// NFS, and its procedures that the tests call by number.
pub const NFS: u32 = 100_003;
pub const GETATTR: u32 = 1;
pub const LOOKUP: u32 = 3;
pub const MKDIR: u32 = 9;

/// A connection without manners.
pub struct Raw(TcpStream);

/// Big-endian words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A handle or a name as an argument.
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = words(&[bytes.len() as u32]);
    encoded.extend_from_slice(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Sends a call of (program, version, procedure) with AUTH_SYS of the superuser.
    pub async fn send_call(&mut self, xid: u32, target: [u32; 3], args: &[u8]) {
        // Flavor, length; stamp, machine name, uid, gid, no further groups; no verifier.
        let auth = words(&[1, 20, 0, 0, 0, 0, 0, 0, 0]);
        self.send_call_as(xid, target, &auth, args).await;
    }

    /// The same with AUTH_NONE.
    pub async fn send_anonymous_call(&mut self, xid: u32, target: [u32; 3], args: &[u8]) {
        self.send_call_as(xid, target, &words(&[0, 0, 0, 0]), args).await;
    }

    async fn send_call_as(&mut self, xid: u32, target: [u32; 3], auth: &[u8], args: &[u8]) {
        let [program, version, procedure] = target;
        let head = words(&[xid, 0, 2, program, version, procedure]);
        let len = (head.len() + auth.len() + args.len()) as u32;
        let mark = (len | 1 << 31).to_be_bytes();
        self.send(&[&mark[..], &head, auth, args].concat()).await;
    }

    /// Reads a reply of one fragment; `None` once the server has closed the connection.
    pub async fn reply(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).await.ok()?;
        let mark = u32::from_be_bytes(mark);
        assert_eq!(mark >> 31, 1, "one fragment");
        let mut reply = vec![0; (mark & !(1 << 31)) as usize];
        self.0.read_exact(&mut reply).await.ok()?;
        Some(reply)
    }

    /// A reply's words.
    pub async fn reply_words(&mut self) -> Option<Vec<u32>> {
        let reply = self.reply().await?;
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        Some(reply.chunks_exact(4).map(word).collect())
    }
}
