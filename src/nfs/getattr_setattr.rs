//! GETATTR, SETATTR.

use super::{HandlerResult, Handles, Nfs, attr, reply, reply_wcc};
use crate::vfs::{Caller, Outcome, Vfs};
use crate::wire::nfs3::{Fattr, FileHandle, WccData, args};

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// GETATTR (RFC 1813 §3.3.1).
    pub(super) async fn getattr(
        &self,
        caller: &Caller,
        args: FileHandle,
    ) -> HandlerResult<Fattr, ()> {
        let object = self.handles.decode(&args)?;
        let result = self.vfs.getattr(caller, &object).await;
        Ok(reply(Outcome { result, context: () }, |()| (), |attr, ()| attr::fattr(&attr)))
    }

    /// SETATTR (RFC 1813 §3.3.2).
    pub(super) async fn setattr(
        &self,
        caller: &Caller,
        args: args::SetattrArgs,
    ) -> HandlerResult<WccData, WccData> {
        let object = self.handles.decode(&args.object)?;
        let set = match attr::set_attr(args.attributes) {
            Ok(set) => set,
            Err(error) => return self.refuse(caller, &object, error).await,
        };
        let guard = args.guard.map(attr::guard_time);
        let outcome = self.vfs.setattr(caller, &object, set, guard).await;
        Ok(reply_wcc(outcome, |(), wcc| wcc))
    }
}
