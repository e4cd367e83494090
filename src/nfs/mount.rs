//! The MOUNT program: the one export, `/`.
//!
//! Remembered mounts are a courtesy to `showmount`: nothing depends on them, and they are
//! forgotten with the process.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{CallError, HandleCodec, decode, encode, to_mount_status};
use crate::vfs::{Caller, FsError, Vfs};
use crate::wire::mount3::{
    DirPath, ExportList, MAX_PATH_BYTES, MountEntry, MountList, MountReply, Procedure,
};
use crate::wire::xdr::{Decode, Encoder};

/// How many clients DUMP knows at most; beyond that the oldest is forgotten.
pub const MAX_REMEMBERED_MOUNTS: usize = 1024;

/// The path of the export.
const EXPORT_PATH: &[u8] = b"/";

/// `AUTH_SYS` (RFC 5531 §8.2): what we prefer.
const AUTH_SYS: u32 = 1;
/// `AUTH_NONE` (RFC 5531 §8.2).
const AUTH_NONE: u32 = 0;

/// The MOUNT program, version 3.
#[derive(Debug)]
pub struct Mount<V> {
    vfs: Arc<V>,
    handles: HandleCodec,
    /// Clients that mounted and did not unmount, oldest first.
    clients: Mutex<VecDeque<IpAddr>>,
}

impl<V: Vfs> Mount<V> {
    /// Gives out the root of `vfs`, as a handle of `handles`.
    pub fn new(vfs: Arc<V>, handles: HandleCodec) -> Self {
        Self { vfs, handles, clients: Mutex::default() }
    }

    /// Runs the procedure with this number on its encoded arguments; the reply is encoded too.
    pub async fn call(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<Encoder, CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        let client = caller.client.ip().to_canonical();
        if !matches!(procedure, Procedure::Mnt | Procedure::Umnt) {
            <()>::decode_all(args.clone())?;
        }
        Ok(match procedure {
            Procedure::Null => Encoder::new(),
            Procedure::Mnt => encode(&self.mnt(client, decode(args)?).await),
            Procedure::Dump => encode(&self.dump()),
            Procedure::Umnt => encode(&self.umnt(client, &decode(args)?)),
            Procedure::UmntAll => encode(&self.forget(client)),
            Procedure::Export => encode(&ExportList(vec![Bytes::from_static(EXPORT_PATH)])),
        })
    }

    async fn mnt(&self, client: IpAddr, path: DirPath) -> MountReply {
        let root = match check_path(&path) {
            Ok(()) => self.vfs.root().await,
            Err(error) => Err(error),
        };
        match root {
            Ok((locator, _)) => {
                self.remember(client);
                MountReply::Ok {
                    handle: self.handles.encode(&locator),
                    flavors: vec![AUTH_SYS, AUTH_NONE],
                }
            }
            Err(error) => MountReply::Fail(to_mount_status(error)),
        }
    }

    fn umnt(&self, client: IpAddr, path: &DirPath) {
        if check_path(path).is_ok() {
            self.forget(client);
        }
    }

    fn dump(&self) -> MountList {
        let entry = |client: &IpAddr| MountEntry {
            host: client.to_string().into(),
            path: Bytes::from_static(EXPORT_PATH),
        };
        MountList(self.clients().iter().map(entry).collect())
    }

    fn remember(&self, client: IpAddr) {
        let mut clients = self.clients();
        if clients.contains(&client) {
            return;
        }
        if clients.len() >= MAX_REMEMBERED_MOUNTS {
            clients.pop_front();
        }
        clients.push_back(client);
    }

    fn forget(&self, client: IpAddr) {
        self.clients().retain(|&known| known != client);
    }

    fn clients(&self) -> MutexGuard<'_, VecDeque<IpAddr>> {
        // A list of addresses is whole whatever a panic interrupted.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes any spelling of `/`, and nothing else: nobody mounts a part of the export.
fn check_path(path: &DirPath) -> Result<(), FsError> {
    if path.0.len() > MAX_PATH_BYTES {
        Err(FsError::NameTooLong)
    } else if path.0.is_empty() || path.0.iter().any(|&byte| byte != b'/') {
        Err(FsError::NotFound)
    } else {
        Ok(())
    }
}
