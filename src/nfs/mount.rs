//! The MOUNT program: returns the root handle of an export by its path.
//!
//! Remembered mounts exist only for `showmount`. Nothing depends on them, and they are not
//! persistent.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::{CallError, HandleCodec, Handles, decode, encode, to_mount_status};
use crate::vfs::{Caller, ExportRoot, Flavor, FsError, Vfs};
use crate::wire::mount3::{
    DirPath, ExportList, MAX_PATH_BYTES, MountEntry, MountList, MountProcedure, MountReply,
};
use crate::wire::xdr::{Decode, Encoder};

/// Upper bound of the mounts that DUMP lists; the oldest is forgotten first.
pub const MAX_REMEMBERED_MOUNTS: usize = 1024;

/// Upper bound of an encoded DUMP entry without its path, in bytes: words, and an address as text.
const ENTRY_BYTES: usize = 4 * 4 + 48;

/// `AUTH_SYS` (RFC 5531 §8.2).
const AUTH_SYS: u32 = 1;
/// `AUTH_NONE` (RFC 5531 §8.2).
const AUTH_NONE: u32 = 0;

/// The MOUNT program, version 3.
#[derive(Debug)]
pub struct MountProgram<V, H = HandleCodec> {
    vfs: Arc<V>,
    handles: H,
    /// Clients and the paths that they have mounted, oldest first.
    mounts: Mutex<VecDeque<(IpAddr, Bytes)>>,
}

impl<V: Vfs, H: Handles<V::Object>> MountProgram<V, H> {
    /// Serves the exports of `vfs`; `handles` encodes their roots.
    pub fn new(vfs: Arc<V>, handles: H) -> Self {
        Self { vfs, handles, mounts: Mutex::default() }
    }

    /// Executes a procedure; arguments and results are encoded.
    pub async fn call(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<Encoder, CallError> {
        let procedure =
            MountProcedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        if !matches!(procedure, MountProcedure::Mnt | MountProcedure::Umnt) {
            <()>::decode_all(args.clone())?;
        }
        Ok(match procedure {
            MountProcedure::Null => Encoder::new(),
            MountProcedure::Mnt => encode(&self.mnt(caller, &decode(args)?).await),
            MountProcedure::Dump => encode(&self.dump(caller)),
            MountProcedure::Umnt => encode(&self.umnt(caller, &decode(args)?)),
            MountProcedure::UmntAll => encode(&self.umnt_all(caller)),
            MountProcedure::Export => encode(&ExportList(self.vfs.exports(caller))),
        })
    }

    /// Upper bound of the encoded result of DUMP now, in bytes.
    pub fn dump_bytes(&self) -> usize {
        self.mounts().iter().map(|(_, path)| path.len() + ENTRY_BYTES).sum()
    }

    async fn mnt(&self, caller: &Caller, path: &DirPath) -> MountReply {
        if path.0.len() > MAX_PATH_BYTES {
            return MountReply::Fail(to_mount_status(FsError::NameTooLong));
        }
        let path = spelled(path);
        match self.vfs.mount(caller, &path).await {
            Ok(ExportRoot { object, flavors }) => {
                self.remember(client_of(caller), path);
                let number = |flavor: &Flavor| match flavor {
                    Flavor::Sys => AUTH_SYS,
                    Flavor::None => AUTH_NONE,
                };
                let flavors = flavors.iter().map(number).collect();
                MountReply::Ok { handle: self.handles.encode(&object), flavors }
            }
            Err(error) => MountReply::Fail(to_mount_status(error)),
        }
    }

    fn umnt(&self, caller: &Caller, path: &DirPath) {
        let (client, path) = (client_of(caller), spelled(path));
        self.vfs.unmounted(caller, Some(&path));
        self.mounts().retain(|known| *known != (client, path.clone()));
    }

    fn umnt_all(&self, caller: &Caller) {
        let client = client_of(caller);
        self.vfs.unmounted(caller, None);
        self.mounts().retain(|(known, _)| *known != client);
    }

    /// Lists only mounts of exports that the caller may list: a path can be secret.
    fn dump(&self, caller: &Caller) -> MountList {
        let told = self.vfs.exports(caller);
        let mounts = self.mounts();
        let shown = mounts.iter().filter(|(_, path)| told.contains(path));
        let entry = |(client, path): &(IpAddr, Bytes)| MountEntry {
            host: client.to_string().into(),
            path: path.clone(),
        };
        MountList(shown.map(entry).collect())
    }

    fn remember(&self, client: IpAddr, path: Bytes) {
        let mut mounts = self.mounts();
        if mounts.iter().any(|known| *known == (client, path.clone())) {
            return;
        }
        if mounts.len() >= MAX_REMEMBERED_MOUNTS {
            mounts.pop_front();
        }
        mounts.push_back((client, path));
    }

    fn mounts(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Bytes)>> {
        // A panic cannot leave the list inconsistent.
        self.mounts.lock()
    }
}

fn client_of(caller: &Caller) -> IpAddr {
    caller.client.ip().to_canonical()
}

/// Normalizes a path as exports do: one slash between components, none at the end. A relative path
/// is not changed, and names no export.
fn spelled(path: &DirPath) -> Bytes {
    if !path.0.starts_with(b"/") {
        // Copied, so that the path does not keep the call's record in memory.
        return Bytes::copy_from_slice(&path.0);
    }
    let mut spelled = Vec::with_capacity(path.0.len());
    for component in path.0.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        spelled.push(b'/');
        spelled.extend_from_slice(component);
    }
    if spelled.is_empty() {
        spelled.push(b'/');
    }
    spelled.into()
}
