//! A small RPC client for calls to the rpcbind of this machine.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::wire::record::{self, RecordReader};
use crate::wire::rpc::{self, Call};
use crate::wire::xdr::Encoder;

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the longest accepted reply: a list of some thousand programs.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// A byte stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Calls one version of one program; one call at a time.
pub(super) struct RpcClient {
    stream: Box<dyn Stream>,
    program: u32,
    version: u32,
    xid: u32,
}

impl RpcClient {
    /// A client of `version` of `program` over `stream`.
    pub(super) fn new(stream: Box<dyn Stream>, program: u32, version: u32) -> Self {
        Self { stream, program, version, xid: std::process::id() }
    }

    /// Calls `procedure` with AUTH_NONE; returns the results.
    pub(super) async fn call(&mut self, procedure: u32, args: Encoder) -> io::Result<Bytes> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = Call::encode_header(self.xid, self.program, self.version, procedure);
        call.append(args);
        let exchange = async {
            self.stream.write_all(&record::mark(call.len())).await?;
            self.stream.write_all(&call.into_bytes()).await?;
            let reply = read_record(&mut self.stream).await?;
            rpc::parse_success(reply, self.xid).map_err(io::Error::other)
        };
        tokio::time::timeout(CALL_TIMEOUT, exchange).await.map_err(io::Error::from)?
    }
}

async fn read_record(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut records = RecordReader::new(MAX_REPLY_BYTES);
    let mut input = BytesMut::new();
    loop {
        if let Some(record) = records.next_record(&mut input).map_err(io::Error::other)? {
            return Ok(record);
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
