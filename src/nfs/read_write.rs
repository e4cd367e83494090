//! READ, WRITE, COMMIT.

use super::{HandlerResult, Handles, Nfs, reply_post_op, reply_wcc};
use crate::counters::COUNTERS;
use crate::vfs::{Caller, FsError, Stability, Vfs};
use crate::wire::nfs3::{MAX_TRANSFER_BYTES, PostOpAttr, StableHow, WccData, args, results};

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// READ (RFC 1813 §3.3.6); returns at most [`MAX_TRANSFER_BYTES`].
    pub(super) async fn read(
        &self,
        caller: &Caller,
        args: args::ReadArgs,
    ) -> HandlerResult<results::ReadOk, PostOpAttr> {
        let file = self.handles.decode(&args.file)?;
        let count = args.count.min(MAX_TRANSFER_BYTES);
        let outcome = self.vfs.read(caller, &file, args.offset, count).await;
        if let Ok(read) = &outcome.result {
            COUNTERS.read_bytes.add(read.data.len() as u64);
        }
        Ok(reply_post_op(outcome, |read, attributes| results::ReadOk {
            attributes,
            eof: read.eof,
            data: read.data,
        }))
    }

    /// WRITE (RFC 1813 §3.3.7); a count that is not the data's length is `NFS3ERR_INVAL`.
    pub(super) async fn write(
        &self,
        caller: &Caller,
        args: args::WriteArgs,
    ) -> HandlerResult<results::WriteOk, WccData> {
        let file = self.handles.decode(&args.file)?;
        if args.count as usize != args.data.len() {
            return self.refuse(caller, &file, FsError::Invalid).await;
        }
        let stability = stability(args.stable);
        let outcome = self.vfs.write(caller, &file, args.offset, args.data, stability).await;
        if let Ok(written) = &outcome.result {
            COUNTERS.written_bytes.add(written.count.into());
        }
        Ok(reply_wcc(outcome, |written, wcc| results::WriteOk {
            wcc,
            count: written.count,
            committed: stable_how(written.committed),
            verifier: written.verifier.0,
        }))
    }

    /// COMMIT (RFC 1813 §3.3.21); always commits the whole file, whatever the range.
    pub(super) async fn commit(
        &self,
        caller: &Caller,
        args: args::CommitArgs,
    ) -> HandlerResult<results::CommitOk, WccData> {
        let file = self.handles.decode(&args.file)?;
        let outcome = self.vfs.commit(caller, &file).await;
        Ok(reply_wcc(outcome, |verifier, wcc| results::CommitOk { wcc, verifier: verifier.0 }))
    }
}

fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}
