//! FSSTAT, FSINFO, PATHCONF.

use super::{HandlerResult, Handles, Nfs, attr, reply_post_op};
use crate::vfs::{Caller, Vfs};
use crate::wire::nfs3::results::{FsinfoOk, FsstatOk, PathconfOk, properties};
use crate::wire::nfs3::{
    FileHandle, MAX_TRANSFER_BYTES, PREFERRED_DIR_BYTES, PostOpAttr, TRANSFER_MULTIPLE_BYTES,
};

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// FSSTAT (RFC 1813 §3.3.18); the values may change at any time.
    pub(super) async fn fsstat(
        &self,
        caller: &Caller,
        args: FileHandle,
    ) -> HandlerResult<FsstatOk, PostOpAttr> {
        let object = self.handles.decode(&args)?;
        let outcome = self.vfs.fsstat(caller, &object).await;
        Ok(reply_post_op(outcome, |stat, attributes| FsstatOk {
            attributes,
            total_bytes: stat.total_bytes,
            free_bytes: stat.free_bytes,
            available_bytes: stat.available_bytes,
            total_files: stat.total_files,
            free_files: stat.free_files,
            available_files: stat.available_files,
            invariant_secs: 0,
        }))
    }

    /// FSINFO (RFC 1813 §3.3.19).
    pub(super) async fn fsinfo(
        &self,
        caller: &Caller,
        args: FileHandle,
    ) -> HandlerResult<FsinfoOk, PostOpAttr> {
        let object = self.handles.decode(&args)?;
        let outcome = self.vfs.fsinfo(caller, &object).await;
        Ok(reply_post_op(outcome, |info, attributes| FsinfoOk {
            attributes,
            read_max: MAX_TRANSFER_BYTES,
            read_preferred: MAX_TRANSFER_BYTES,
            read_multiple: TRANSFER_MULTIPLE_BYTES,
            write_max: MAX_TRANSFER_BYTES,
            write_preferred: MAX_TRANSFER_BYTES,
            write_multiple: TRANSFER_MULTIPLE_BYTES,
            dir_preferred: PREFERRED_DIR_BYTES,
            max_file_bytes: info.max_file_bytes,
            time_delta: attr::nfs_time(info.time_delta),
            properties: properties::LINK
                | properties::SYMLINK
                | properties::HOMOGENEOUS
                | properties::CANSETTIME,
        }))
    }

    /// PATHCONF (RFC 1813 §3.3.20).
    pub(super) async fn pathconf(
        &self,
        caller: &Caller,
        args: FileHandle,
    ) -> HandlerResult<PathconfOk, PostOpAttr> {
        let object = self.handles.decode(&args)?;
        let outcome = self.vfs.pathconf(caller, &object).await;
        Ok(reply_post_op(outcome, |conf, attributes| PathconfOk {
            attributes,
            max_links: conf.max_links,
            max_name_bytes: conf.max_name_bytes,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }))
    }
}
