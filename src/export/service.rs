//! The exports as a [`Vfs`]: checks the caller, finds the mount, calls its overlay, and translates
//! the result into the export's view.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::listing::Lister;
use super::object::{MountedObject, OpenObject};
use super::validating_overlay::ValidatingOverlay;
use super::{Admission, Exports, Refused};
use crate::vfs::{
    Access, Attr, Caller, Cookie, CreateHow, Created, DirPage, Entry, ExportRoot, Flavor, FsError,
    FsInfo, FsStat, LockKey, LookedUp, NewNode, Outcome, PathConf, ReadData, SetAttr, Stability,
    Time, Vfs, Wcc, WriteVerifier, Written,
};

/// A call on an object: the caller as its export sees it, and the object in the open export.
pub(super) struct Entered<'a> {
    pub(super) caller: Cow<'a, Caller>,
    pub(super) object: OpenObject,
}

impl Deref for Entered<'_> {
    type Target = OpenObject;

    fn deref(&self) -> &OpenObject {
        &self.object
    }
}

impl MountedObject {
    /// Admits and squashes the caller, and opens the export if it is closed.
    async fn enter<'a>(&self, caller: &'a Caller) -> Result<Entered<'a>, FsError> {
        if let Err(refused) = self.entry().admission().admit(caller) {
            tracing::debug!(client = %caller.client, %refused, "a call was refused");
            return Err(FsError::Access);
        }
        self.entry().clients().note(caller.client.ip());
        let object = self.open().await?;
        Ok(Entered { caller: object.export().squash.apply(caller), object })
    }
}

impl Entered<'_> {
    fn overlay(&self) -> &ValidatingOverlay {
        &self.mount().overlay
    }

    /// The result of a rejected change in this directory.
    async fn refused<T>(&self, error: FsError) -> Outcome<T, Wcc> {
        Outcome::err(error, self.unchanged(&self.caller).await)
    }
}

impl OpenObject {
    async fn unchanged(&self, caller: &Caller) -> Wcc {
        let attr = self.mount().overlay.getattr(caller, self.at()).await.ok();
        Wcc::unchanged(attr.map(|attr| self.show(attr)))
    }

    fn show_outcome<T>(&self, outcome: Outcome<T, Option<Attr>>) -> Outcome<T, Option<Attr>> {
        let context = outcome.context.map(|attr| self.show(attr));
        Outcome { result: outcome.result, context }
    }

    fn show_change<T>(&self, outcome: Outcome<T, Wcc>) -> Outcome<T, Wcc> {
        Outcome { result: outcome.result, context: self.show_wcc(outcome.context) }
    }

    fn show_created(&self, outcome: Outcome<Created, Wcc>) -> Outcome<Created<MountedObject>, Wcc> {
        let Outcome { result, context } = self.show_change(outcome);
        let shown = |made: Created| Created {
            object: self.sibling(made.object),
            attr: self.show(made.attr),
        };
        Outcome { result: result.map(shown), context }
    }

    /// LOOKUP across a mount point: of a mounted name, or of `..` at the root of a mount. `None`
    /// for any other name.
    async fn cross_mount_point(
        &self,
        caller: &Caller,
        name: &[u8],
    ) -> Option<Outcome<LookedUp<MountedObject>, Option<Attr>>> {
        let target = match name {
            b".." => self.above_mount()?,
            _ => self.mounted_at(name)?,
        };
        // Crossing requires search permission, as for any other name.
        let here = self.mount().overlay.lookup(caller, self.at(), b".").await;
        let context = here.context.map(|attr| self.show(attr));
        let result = match here.result {
            Ok(_) => target.mount().overlay.getattr(caller, target.at()).await,
            Err(error) => Err(error),
        };
        let result =
            result.map(|attr| LookedUp { attr: target.show(attr), object: target.object() });
        Some(Outcome { result, context })
    }
}

impl Vfs for Exports {
    type Object = MountedObject;

    async fn mount(
        &self,
        caller: &Caller,
        path: &[u8],
    ) -> Result<ExportRoot<MountedObject>, FsError> {
        let (entry, export) = self.open_to_mount(caller, path).await?;
        let root = OpenObject::root(&entry, export);
        root.mount().overlay.getattr(caller, root.at()).await?;
        Ok(ExportRoot { object: root.object(), flavors: entry.admission().flavors() })
    }

    fn unmounted(&self, caller: &Caller, path: Option<&[u8]>) {
        self.forget_client(caller.client.ip(), path);
    }

    fn exports(&self, caller: &Caller) -> Vec<Bytes> {
        let table = self.table.read();
        let may_know = |(_, is_secret, admission): &(&Bytes, bool, &Admission)| {
            let admitted = admission.admit(caller);
            !is_secret && matches!(admitted, Ok(()) | Err(Refused::Flavor))
        };
        let served = table.entries().map(|it| (it.path(), it.is_secret(), it.admission()));
        let others = table.unavailable.values().map(|it| (&it.path, it.is_secret, &it.admission));
        let told = served.chain(others).filter(may_know);
        let mut paths: Vec<Bytes> = told.map(|(path, ..)| path.clone()).collect();
        paths.sort_unstable();
        paths
    }

    fn takes_anonymous(&self, object: &MountedObject) -> bool {
        object.entry().admission().takes(Flavor::None)
    }

    fn export_number(&self, object: &MountedObject) -> NonZeroU64 {
        object.identity().export_number()
    }

    fn lock_key(&self, object: &MountedObject) -> LockKey {
        LockKey { fsid: object.identity().session_fsid, fileid: object.at.fileid() }
    }

    async fn getattr(&self, caller: &Caller, object: &MountedObject) -> Result<Attr, FsError> {
        let object = object.enter(caller).await?;
        let attr = object.overlay().getattr(&object.caller, object.at()).await?;
        Ok(object.show(attr))
    }

    async fn setattr(
        &self,
        caller: &Caller,
        object: &MountedObject,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let set = match object.export().squash.set(set) {
            Ok(set) => set,
            Err(error) => return object.refused(error).await,
        };
        object.show_change(object.overlay().setattr(&object.caller, object.at(), set, guard).await)
    }

    async fn lookup(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
    ) -> Outcome<LookedUp<MountedObject>, Option<Attr>> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if let Some(crossed) = dir.cross_mount_point(&dir.caller, name).await {
            return crossed;
        }
        let found = dir.show_outcome(dir.overlay().lookup(&dir.caller, dir.at(), name).await);
        let shown = |found: LookedUp| LookedUp {
            object: dir.sibling(found.object),
            attr: dir.show(found.attr),
        };
        Outcome { result: found.result.map(shown), context: found.context }
    }

    async fn access(
        &self,
        caller: &Caller,
        object: &MountedObject,
        want: Access,
    ) -> Outcome<Access, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().access(&object.caller, object.at(), want).await)
    }

    async fn readlink(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<Bytes, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().readlink(&object.caller, object.at()).await)
    }

    async fn read(
        &self,
        caller: &Caller,
        object: &MountedObject,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().read(&object.caller, object.at(), offset, count).await)
    }

    async fn write(
        &self,
        caller: &Caller,
        object: &MountedObject,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_change(
            object.overlay().write(&object.caller, object.at(), offset, data, stability).await,
        )
    }

    async fn create(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
        how: CreateHow,
    ) -> Outcome<Created<MountedObject>, Wcc> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let squash = &dir.export().squash;
        let how = match how {
            CreateHow::Unchecked(set) => CreateHow::Unchecked(squash.set_new(set)),
            CreateHow::Guarded(set) => CreateHow::Guarded(squash.set_new(set)),
            CreateHow::Exclusive(verifier) => CreateHow::Exclusive(verifier),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(FsError::Exists).await;
        }
        dir.show_created(dir.overlay().create(&dir.caller, dir.at(), name, how).await)
    }

    async fn make_node(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> Outcome<Created<MountedObject>, Wcc> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(FsError::Exists).await;
        }
        let set = dir.export().squash.set_new(set);
        dir.show_created(dir.overlay().make_node(&dir.caller, dir.at(), name, node, set).await)
    }

    async fn remove(&self, caller: &Caller, dir: &MountedObject, name: &[u8]) -> Outcome<(), Wcc> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(FsError::IsDirectory).await;
        }
        dir.show_change(dir.overlay().remove(&dir.caller, dir.at(), name).await)
    }

    async fn rmdir(&self, caller: &Caller, dir: &MountedObject, name: &[u8]) -> Outcome<(), Wcc> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(FsError::Access).await;
        }
        dir.show_change(dir.overlay().rmdir(&dir.caller, dir.at(), name).await)
    }

    async fn rename(
        &self,
        caller: &Caller,
        from: (&MountedObject, &[u8]),
        to: (&MountedObject, &[u8]),
    ) -> Outcome<(), (Wcc, Wcc)> {
        let (from_name, to_name) = (from.1, to.1);
        let (from, to) = match enter_both(caller, from.0, to.0).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let is_busy = from.mounted_at(from_name).or_else(|| to.mounted_at(to_name)).is_some();
        let refused = match from.is_in_mount_of(&to) {
            false => Some(FsError::CrossDevice),
            true => is_busy.then_some(FsError::Access),
        };
        let caller = &from.caller;
        if let Some(error) = refused {
            let context = (from.unchanged(caller).await, to.unchanged(caller).await);
            return Outcome::err(error, context);
        }
        let renamed = from.overlay().rename(caller, (from.at(), from_name), (to.at(), to_name));
        let Outcome { result, context } = renamed.await;
        Outcome { result, context: (from.show_wcc(context.0), to.show_wcc(context.1)) }
    }

    async fn link(
        &self,
        caller: &Caller,
        object: &MountedObject,
        dir: &MountedObject,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        let (object, dir) = match enter_both(caller, object, dir).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let refused = match object.is_in_mount_of(&dir) {
            false => Some(FsError::CrossDevice),
            true => dir.mounted_at(name).map(|_| FsError::Exists),
        };
        let caller = &object.caller;
        if let Some(error) = refused {
            let attr = object.overlay().getattr(caller, object.at()).await.ok();
            let attr = attr.map(|attr| object.show(attr));
            return Outcome::err(error, (attr, dir.unchanged(caller).await));
        }
        let linked = object.overlay().link(caller, object.at(), dir.at(), name).await;
        let attr = linked.context.0.map(|attr| object.show(attr));
        Outcome { result: linked.result, context: (attr, dir.show_wcc(linked.context.1)) }
    }

    async fn readdir(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        cookie: Cookie,
        with_attrs: bool,
        take: impl FnMut(&Entry<MountedObject>) -> bool + Send + 'static,
    ) -> Outcome<DirPage, Option<Attr>> {
        let dir = match dir.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let lister = Lister::begin(&dir, cookie, with_attrs, take).await;
        // `take` runs on a worker thread. This task uses the lister again only after the listing.
        let lister = Arc::new(Mutex::new(lister));
        let taking = Arc::clone(&lister);
        let take = move |entry: &Entry| locked(&taking).take(entry);
        let listed = dir.overlay().readdir(&dir.caller, dir.at(), cookie, with_attrs, take).await;
        let mut listed = dir.show_outcome(listed);
        if let Ok(page) = &mut listed.result
            && page.eof
        {
            page.eof = locked(&lister).take_mounted();
        }
        listed
    }

    async fn fsstat(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<FsStat, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().fsstat(&object.caller, object.at()).await)
    }

    async fn fsinfo(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<FsInfo, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().fsinfo(&object.caller, object.at()).await)
    }

    async fn pathconf(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<PathConf, Option<Attr>> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_outcome(object.overlay().pathconf(&object.caller, object.at()).await)
    }

    async fn commit(&self, caller: &Caller, object: &MountedObject) -> Outcome<WriteVerifier, Wcc> {
        let object = match object.enter(caller).await {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        object.show_change(object.overlay().commit(&object.caller, object.at()).await)
    }
}

/// Enters both objects of a call.
async fn enter_both<'a>(
    caller: &'a Caller,
    first: &MountedObject,
    second: &MountedObject,
) -> Result<(Entered<'a>, Entered<'a>), FsError> {
    Ok((first.enter(caller).await?, second.enter(caller).await?))
}

fn locked<F>(lister: &Mutex<Lister<F>>) -> MutexGuard<'_, Lister<F>> {
    lister.lock()
}
