//! REMOVE, RMDIR, RENAME, LINK: procedures that change names of existing objects.

use super::{HandlerResult, Handles, Nfs, attr, reply, reply_wcc};
use crate::vfs::{Caller, Vfs};
use crate::wire::nfs3::results::{LinkAttrs, RenameWcc};
use crate::wire::nfs3::{WccData, args};

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// REMOVE (RFC 1813 §3.3.12).
    pub(super) async fn remove(
        &self,
        caller: &Caller,
        args: args::DirOpArgs,
    ) -> HandlerResult<WccData, WccData> {
        let dir = self.handles.decode(&args.dir)?;
        let outcome = self.vfs.remove(caller, &dir, &args.name).await;
        Ok(reply_wcc(outcome, |(), wcc| wcc))
    }

    /// RMDIR (RFC 1813 §3.3.13).
    pub(super) async fn rmdir(
        &self,
        caller: &Caller,
        args: args::DirOpArgs,
    ) -> HandlerResult<WccData, WccData> {
        let dir = self.handles.decode(&args.dir)?;
        let outcome = self.vfs.rmdir(caller, &dir, &args.name).await;
        Ok(reply_wcc(outcome, |(), wcc| wcc))
    }

    /// RENAME (RFC 1813 §3.3.14).
    pub(super) async fn rename(
        &self,
        caller: &Caller,
        args: args::RenameArgs,
    ) -> HandlerResult<RenameWcc, RenameWcc> {
        let from = self.handles.decode(&args.from.dir)?;
        let to = self.handles.decode(&args.to.dir)?;
        let outcome = self.vfs.rename(caller, (&from, &args.from.name), (&to, &args.to.name)).await;
        let context = |(from, to)| RenameWcc { from: attr::wcc(from), to: attr::wcc(to) };
        Ok(reply(outcome, context, |(), wcc| wcc))
    }

    /// LINK (RFC 1813 §3.3.15).
    pub(super) async fn link(
        &self,
        caller: &Caller,
        args: args::LinkArgs,
    ) -> HandlerResult<LinkAttrs, LinkAttrs> {
        let object = self.handles.decode(&args.file)?;
        let dir = self.handles.decode(&args.link.dir)?;
        let outcome = self.vfs.link(caller, &object, &dir, &args.link.name).await;
        let context = |(attributes, wcc)| LinkAttrs {
            attributes: attr::post_op(attributes),
            dir_wcc: attr::wcc(wcc),
        };
        Ok(reply(outcome, context, |(), attributes| attributes))
    }
}
