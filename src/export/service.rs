//! The exports as a [`Vfs`]: checks the caller, finds the mount, calls its overlay, and translates
//! the result into the export's view.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::listing::Lister;
use super::tree::MountedObject;
use super::validating_overlay::ValidatingOverlay;
use super::{Admission, Exports, Refused};
use crate::vfs::{
    Access, Attr, Caller, Cookie, CreateHow, Created, DirPage, Entry, ExportRoot, Flavor, FsError,
    FsInfo, FsStat, LockKey, LookedUp, NewNode, Outcome, PathConf, ReadData, SetAttr, Stability,
    Time, Vfs, Wcc, WriteVerifier, Written,
};

impl MountedObject {
    /// Admits and squashes the caller; returns it with the overlay of the object's mount.
    fn enter<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> Result<(Cow<'a, Caller>, &'a ValidatingOverlay), FsError> {
        if let Err(refused) = self.export().admission.admit(caller) {
            tracing::debug!(client = %caller.client, %refused, "a call was refused");
            return Err(FsError::Access);
        }
        Ok((self.export().squash.apply(caller), &self.mount().overlay))
    }

    /// The result of a rejected change in this directory.
    async fn refused<T>(&self, caller: &Caller, error: FsError) -> Outcome<T, Wcc> {
        Outcome::err(error, self.unchanged(caller).await)
    }

    async fn unchanged(&self, caller: &Caller) -> Wcc {
        let attr = self.mount().overlay.getattr(caller, &self.at).await.ok();
        Wcc::unchanged(attr.map(|attr| self.show(attr)))
    }

    fn show_outcome<T>(&self, outcome: Outcome<T, Option<Attr>>) -> Outcome<T, Option<Attr>> {
        let context = outcome.context.map(|attr| self.show(attr));
        Outcome { result: outcome.result, context }
    }

    fn show_change<T>(&self, outcome: Outcome<T, Wcc>) -> Outcome<T, Wcc> {
        Outcome { result: outcome.result, context: self.show_wcc(outcome.context) }
    }

    fn show_created(&self, outcome: Outcome<Created, Wcc>) -> Outcome<Created<Self>, Wcc> {
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
    ) -> Option<Outcome<LookedUp<Self>, Option<Attr>>> {
        let target = match name {
            b".." => self.above_mount()?,
            _ => self.mounted_at(name)?,
        };
        // Crossing requires search permission, as for any other name.
        let here = self.mount().overlay.lookup(caller, &self.at, b".").await;
        let context = here.context.map(|attr| self.show(attr));
        let result = match here.result {
            Ok(_) => target.mount().overlay.getattr(caller, &target.at).await,
            Err(error) => Err(error),
        };
        let result = result.map(|attr| LookedUp { attr: target.show(attr), object: target });
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
        let table = self.table();
        let Some(export) = table.by_path.get(path).cloned() else {
            let unavailable = table.unavailable.get(path).ok_or(FsError::NotFound)?;
            return match unavailable.admission.admit(caller) {
                Ok(()) | Err(Refused::Flavor) => Err(FsError::Fault),
                Err(_) => Err(FsError::NotFound),
            };
        };
        // Any flavor may mount: the reply lists the accepted flavors. Any other refusal looks like
        // a missing export.
        match export.admission.admit(caller) {
            Ok(()) | Err(Refused::Flavor) => {}
            Err(refused) => {
                tracing::debug!(client = %caller.client, %refused, "a mount was refused");
                return Err(FsError::NotFound);
            }
        }
        let object = export.root();
        object.mount().overlay.getattr(caller, &object.at).await?;
        let flavors = object.export().admission.flavors();
        Ok(ExportRoot { object, flavors })
    }

    fn exports(&self, caller: &Caller) -> Vec<Bytes> {
        let table = self.table();
        let may_know = |(_, is_secret, admission): &(&Bytes, bool, &Admission)| {
            let admitted = admission.admit(caller);
            !is_secret && matches!(admitted, Ok(()) | Err(Refused::Flavor))
        };
        let served = table.by_path.values().map(|it| (it.path(), it.is_secret(), &it.admission));
        let others = table.unavailable.values().map(|it| (&it.path, it.is_secret, &it.admission));
        let told = served.chain(others).filter(may_know);
        let mut paths: Vec<Bytes> = told.map(|(path, ..)| path.clone()).collect();
        paths.sort_unstable();
        paths
    }

    fn takes_anonymous(&self, object: &MountedObject) -> bool {
        object.export().admission.takes(Flavor::None)
    }

    fn export_number(&self, object: &MountedObject) -> NonZeroU64 {
        object.export().number()
    }

    fn lock_key(&self, object: &MountedObject) -> LockKey {
        object.mount().overlay.lock_key(&object.at)
    }

    async fn getattr(&self, caller: &Caller, object: &MountedObject) -> Result<Attr, FsError> {
        let (caller, overlay) = object.enter(caller)?;
        overlay.getattr(&caller, &object.at).await.map(|attr| object.show(attr))
    }

    async fn setattr(
        &self,
        caller: &Caller,
        object: &MountedObject,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        let (caller, overlay) = match object.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let set = match object.export().squash.set(set) {
            Ok(set) => set,
            Err(error) => return object.refused(&caller, error).await,
        };
        object.show_change(overlay.setattr(&caller, &object.at, set, guard).await)
    }

    async fn lookup(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
    ) -> Outcome<LookedUp<MountedObject>, Option<Attr>> {
        let (caller, overlay) = match dir.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if let Some(crossed) = dir.cross_mount_point(&caller, name).await {
            return crossed;
        }
        let found = dir.show_outcome(overlay.lookup(&caller, &dir.at, name).await);
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
        match object.enter(caller) {
            Ok((caller, overlay)) => {
                object.show_outcome(overlay.access(&caller, &object.at, want).await)
            }
            Err(error) => error.into(),
        }
    }

    async fn readlink(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<Bytes, Option<Attr>> {
        match object.enter(caller) {
            Ok((caller, overlay)) => {
                object.show_outcome(overlay.readlink(&caller, &object.at).await)
            }
            Err(error) => error.into(),
        }
    }

    async fn read(
        &self,
        caller: &Caller,
        object: &MountedObject,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        match object.enter(caller) {
            Ok((caller, overlay)) => {
                object.show_outcome(overlay.read(&caller, &object.at, offset, count).await)
            }
            Err(error) => error.into(),
        }
    }

    async fn write(
        &self,
        caller: &Caller,
        object: &MountedObject,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        match object.enter(caller) {
            Ok((caller, overlay)) => object
                .show_change(overlay.write(&caller, &object.at, offset, data, stability).await),
            Err(error) => error.into(),
        }
    }

    async fn create(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
        how: CreateHow,
    ) -> Outcome<Created<MountedObject>, Wcc> {
        let (caller, overlay) = match dir.enter(caller) {
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
            return dir.refused(&caller, FsError::Exists).await;
        }
        dir.show_created(overlay.create(&caller, &dir.at, name, how).await)
    }

    async fn make_node(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> Outcome<Created<MountedObject>, Wcc> {
        let (caller, overlay) = match dir.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(&caller, FsError::Exists).await;
        }
        let set = dir.export().squash.set_new(set);
        dir.show_created(overlay.make_node(&caller, &dir.at, name, node, set).await)
    }

    async fn remove(&self, caller: &Caller, dir: &MountedObject, name: &[u8]) -> Outcome<(), Wcc> {
        let (caller, overlay) = match dir.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(&caller, FsError::IsDirectory).await;
        }
        dir.show_change(overlay.remove(&caller, &dir.at, name).await)
    }

    async fn rmdir(&self, caller: &Caller, dir: &MountedObject, name: &[u8]) -> Outcome<(), Wcc> {
        let (caller, overlay) = match dir.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        if dir.mounted_at(name).is_some() {
            return dir.refused(&caller, FsError::Access).await;
        }
        dir.show_change(overlay.rmdir(&caller, &dir.at, name).await)
    }

    async fn rename(
        &self,
        caller: &Caller,
        from: (&MountedObject, &[u8]),
        to: (&MountedObject, &[u8]),
    ) -> Outcome<(), (Wcc, Wcc)> {
        let entered = from.0.enter(caller).and_then(|from| to.0.enter(caller).map(|_| from));
        let (caller, overlay) = match entered {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let is_busy = [from, to].iter().any(|(dir, name)| dir.mounted_at(name).is_some());
        let refused = match from.0.same_mount(to.0) {
            false => Some(FsError::CrossDevice),
            true => is_busy.then_some(FsError::Access),
        };
        if let Some(error) = refused {
            let context = (from.0.unchanged(&caller).await, to.0.unchanged(&caller).await);
            return Outcome::err(error, context);
        }
        let Outcome { result, context } =
            overlay.rename(&caller, (&from.0.at, from.1), (&to.0.at, to.1)).await;
        let context = (from.0.show_wcc(context.0), to.0.show_wcc(context.1));
        Outcome { result, context }
    }

    async fn link(
        &self,
        caller: &Caller,
        object: &MountedObject,
        dir: &MountedObject,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        let entered = object.enter(caller).and_then(|_| dir.enter(caller));
        let (caller, overlay) = match entered {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let refused = match object.same_mount(dir) {
            false => Some(FsError::CrossDevice),
            true => dir.mounted_at(name).map(|_| FsError::Exists),
        };
        if let Some(error) = refused {
            let attr = object.mount().overlay.getattr(&caller, &object.at).await.ok();
            let attr = attr.map(|attr| object.show(attr));
            return Outcome::err(error, (attr, dir.unchanged(&caller).await));
        }
        let Outcome { result, context } = overlay.link(&caller, &object.at, &dir.at, name).await;
        let attr = context.0.map(|attr| object.show(attr));
        Outcome { result, context: (attr, dir.show_wcc(context.1)) }
    }

    async fn readdir(
        &self,
        caller: &Caller,
        dir: &MountedObject,
        cookie: Cookie,
        with_attrs: bool,
        take: impl FnMut(&Entry<MountedObject>) -> bool + Send + 'static,
    ) -> Outcome<DirPage, Option<Attr>> {
        let (caller, overlay) = match dir.enter(caller) {
            Ok(entered) => entered,
            Err(error) => return error.into(),
        };
        let lister = Lister::begin(&caller, dir, cookie, with_attrs, take).await;
        // `take` runs on a worker thread. This task uses the lister again only after the listing.
        let lister = Arc::new(Mutex::new(lister));
        let taking = Arc::clone(&lister);
        let take = move |entry: &Entry| locked(&taking).take(entry);
        let listed = overlay.readdir(&caller, &dir.at, cookie, with_attrs, take).await;
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
        match object.enter(caller) {
            Ok((caller, overlay)) => object.show_outcome(overlay.fsstat(&caller, &object.at).await),
            Err(error) => error.into(),
        }
    }

    async fn fsinfo(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<FsInfo, Option<Attr>> {
        match object.enter(caller) {
            Ok((caller, overlay)) => object.show_outcome(overlay.fsinfo(&caller, &object.at).await),
            Err(error) => error.into(),
        }
    }

    async fn pathconf(
        &self,
        caller: &Caller,
        object: &MountedObject,
    ) -> Outcome<PathConf, Option<Attr>> {
        match object.enter(caller) {
            Ok((caller, overlay)) => {
                object.show_outcome(overlay.pathconf(&caller, &object.at).await)
            }
            Err(error) => error.into(),
        }
    }

    async fn commit(&self, caller: &Caller, object: &MountedObject) -> Outcome<WriteVerifier, Wcc> {
        match object.enter(caller) {
            Ok((caller, overlay)) => object.show_change(overlay.commit(&caller, &object.at).await),
            Err(error) => error.into(),
        }
    }
}

fn locked<F>(lister: &Mutex<Lister<F>>) -> MutexGuard<'_, Lister<F>> {
    lister.lock()
}
