//! LOOKUP, ACCESS, READLINK.

use super::{HandlerResult, Handles, Nfs, attr, reply_post_op};
use crate::vfs::{Access, Caller, Vfs};
use crate::wire::nfs3::{FileHandle, PostOpAttr, args, results};

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// LOOKUP (RFC 1813 §3.3.3).
    pub(super) async fn lookup(
        &self,
        caller: &Caller,
        args: args::DirOpArgs,
    ) -> HandlerResult<results::LookupOk, PostOpAttr> {
        let dir = self.handles.decode(&args.dir)?;
        let outcome = self.vfs.lookup(caller, &dir, &args.name).await;
        Ok(reply_post_op(outcome, |found, dir_attributes| results::LookupOk {
            object: self.handles.encode(&found.object),
            attributes: Some(attr::fattr(&found.attr)),
            dir_attributes,
        }))
    }

    /// ACCESS (RFC 1813 §3.3.4). Undefined bits are not granted.
    pub(super) async fn access(
        &self,
        caller: &Caller,
        args: args::AccessArgs,
    ) -> HandlerResult<results::AccessOk, PostOpAttr> {
        let object = self.handles.decode(&args.object)?;
        let want = Access(args.access & Access::ALL.0);
        let outcome = self.vfs.access(caller, &object, want).await;
        Ok(reply_post_op(outcome, |granted, attributes| results::AccessOk {
            attributes,
            access: granted.0 & want.0,
        }))
    }

    /// READLINK (RFC 1813 §3.3.5).
    pub(super) async fn readlink(
        &self,
        caller: &Caller,
        args: FileHandle,
    ) -> HandlerResult<results::ReadlinkOk, PostOpAttr> {
        let object = self.handles.decode(&args)?;
        let outcome = self.vfs.readlink(caller, &object).await;
        Ok(reply_post_op(outcome, |target, attributes| results::ReadlinkOk { attributes, target }))
    }
}
