//! The overlay as a [`Vfs`]: each method runs one function of the merge rules on the worker, with
//! its cost: inline on the calling thread, or on a worker thread.
//!
//! Reads run on a snapshot, changes run on the single writer. A change's result is returned after
//! the commit that contains it.

use bytes::Bytes;

use crate::delta::Compacted;
use crate::vfs::{
    Access, Attr, Caller, Cookie, CreateHow, Created, DirPage, Entry, ExportRoot, Flavor, FsError,
    FsInfo, FsStat, Locator, LockKey, LookedUp, NewNode, Outcome, PathConf, ReadData, SetAttr,
    Stability, Time, Vfs, Wcc, WriteVerifier, Written,
};
use crate::worker::{Committed, Cost};

use super::Overlay;
use super::access::access;
use super::create::{create, make_node};
use super::edit::Edit;
use super::error::{from_store, from_work};
use super::hanging::reject_if_refused;
use super::limits::{LIGHT_READ_BYTES, MAX_LINKS};
use super::link::link;
use super::memo::{Memo, NoMemo, ReaderMemo};
use super::read::{read, read_link};
use super::readdir::readdir;
use super::remove::{remove, rmdir};
use super::resolve::View;
use super::setattr::setattr;
use super::write::write;

/// The path of the only export, if a session is served without an exports file.
const EXPORT_PATH: &[u8] = b"/";

impl Overlay {
    /// Runs `f` on one state of the tree. If the caches suffice, no snapshot is taken.
    ///
    /// If a commit began in between, caches and snapshot may disagree: then `f` runs again, on the
    /// snapshot alone.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        cost: Cost,
        f: impl Fn(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, FsError> {
        let (core, scope) = (self.core.clone(), self.scope.clone());
        let work = self.worker.read(cost, move |txn| {
            let view = View { txn, core: &core, memo: &NoMemo, scope: &scope };
            let value = reject_if_refused(|| {
                if let Some(at) = core.caches.version() {
                    let memo = ReaderMemo { caches: &core.caches, at };
                    let value = f(&View { memo: &memo, ..view });
                    if memo.is_current() {
                        return value;
                    }
                }
                f(&view)
            });
            value.ok_or(FsError::TryLater)
        });
        let value = work.await.map_err(|error| from_work(&error))?;
        self.check_lease().and(value)
    }

    /// Runs `f` on a snapshot exactly once: for long operations, and those with side effects.
    pub(super) async fn look_once<T: Send + 'static, C: Default + Send + 'static>(
        &self,
        f: impl FnOnce(&View<'_>) -> Outcome<T, C> + Send + 'static,
    ) -> Outcome<T, C> {
        let (core, scope) = (self.core.clone(), self.scope.clone());
        let mut once = Some(f);
        let work = self.worker.read(Cost::Offload, move |txn| {
            let Some(f) = once.take() else { return FsError::Fault.into() };
            let before = core.caches.version();
            if let Err(error) = txn.hold() {
                return from_store(&error).into();
            }
            let memo = before.map(|at| ReaderMemo { caches: &core.caches, at });
            let memo: &dyn Memo = match &memo {
                Some(memo) if memo.is_current() => memo,
                _ => &NoMemo,
            };
            let view = View { txn, core: &core, memo, scope: &scope };
            reject_if_refused(|| f(&view)).unwrap_or(FsError::TryLater.into())
        });
        let outcome = work.await.unwrap_or_else(|error| from_work(&error).into());
        match self.check_lease() {
            Ok(()) => outcome,
            Err(error) => error.into(),
        }
    }

    /// As [`Overlay::look`], for an operation with an outcome.
    async fn show<T: Send + 'static, C: Default + Send + 'static>(
        &self,
        cost: Cost,
        f: impl Fn(&View<'_>) -> Outcome<T, C> + Send + 'static,
    ) -> Outcome<T, C> {
        self.look(cost, f).await.unwrap_or_else(Outcome::from)
    }

    /// Returns free space of the session file to the disk. Reads continue; changes wait.
    ///
    /// # Errors
    /// The disk lacks space for two copies of the content in use, another program keeps writing, or
    /// the session accepts no changes. The session is unchanged.
    pub async fn compact(&self) -> Result<Compacted, FsError> {
        self.worker.compact().await.map_err(|error| from_work(&error))
    }

    /// As [`Overlay::change`], for procedures without a stability in their reply.
    pub(super) async fn alter<T: Send + 'static, C: Default + Send + 'static>(
        &self,
        caller: &Caller,
        cost: Cost,
        f: impl FnMut(&mut Edit<'_>) -> Outcome<T, C> + Send + 'static,
    ) -> Result<Outcome<T, C>, FsError> {
        self.change(caller, cost, 0, false, f).await.map(|committed| committed.value)
    }

    /// As [`Overlay::alter`], for procedures that return the wcc data of one object.
    async fn alter_at<T: Send + 'static>(
        &self,
        caller: &Caller,
        cost: Cost,
        object: &Locator,
        f: impl FnMut(&mut Edit<'_>) -> Outcome<T, Wcc> + Send + 'static,
    ) -> Outcome<T, Wcc> {
        match self.alter(caller, cost, f).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::err(error, self.unchanged(object).await),
        }
    }

    /// The wcc data of an object whose change was not committed, for example because the disk is
    /// full.
    pub(super) async fn unchanged(&self, object: &Locator) -> Wcc {
        if self.is_base_stuck() {
            return Wcc::unchanged(None);
        }
        let object = object.clone();
        let cost = self.cost_of(&object);
        let attr = self.look(cost, move |view| view.attr_of(&object).ok()).await;
        Wcc::unchanged(attr.ok().flatten())
    }
}

impl Vfs for Overlay {
    type Object = Locator;

    async fn mount(&self, caller: &Caller, path: &[u8]) -> Result<ExportRoot, FsError> {
        if path != EXPORT_PATH {
            return Err(FsError::NotFound);
        }
        let object = self.root();
        self.getattr(caller, &object).await?;
        Ok(ExportRoot { object, flavors: vec![Flavor::Sys, Flavor::None] })
    }

    fn exports(&self, _caller: &Caller) -> Vec<Bytes> {
        vec![Bytes::from_static(EXPORT_PATH)]
    }

    fn lock_key(&self, object: &Locator) -> LockKey {
        LockKey { fsid: self.core.fsid, fileid: object.fileid() }
    }

    async fn getattr(&self, _caller: &Caller, object: &Locator) -> Result<Attr, FsError> {
        let object = object.clone();
        let attr = self.look(self.cost_of(&object), move |view| view.attr_of(&object)).await?;
        attr.map_err(|error| error.into_fs())
    }

    async fn setattr(
        &self,
        caller: &Caller,
        object: &Locator,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        let at = object.clone();
        // A change of size may copy or delete much content.
        let cost = if set.size.is_some() { Cost::Offload } else { self.cost_of(object) };
        self.alter_at(caller, cost, object, move |edit| setattr(edit, &at, &set, guard)).await
    }

    async fn lookup(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<LookedUp, Option<Attr>> {
        let (caller, dir, name) = (caller.clone(), dir.clone(), name.to_vec());
        self.show(self.cost_of(&dir), move |view| view.lookup(&caller, &dir, &name)).await
    }

    async fn access(
        &self,
        caller: &Caller,
        object: &Locator,
        want: Access,
    ) -> Outcome<Access, Option<Attr>> {
        let (caller, object) = (caller.clone(), object.clone());
        self.show(self.cost_of(&object), move |view| access(view, &caller, &object, want)).await
    }

    async fn readlink(&self, _caller: &Caller, object: &Locator) -> Outcome<Bytes, Option<Attr>> {
        let object = object.clone();
        self.show(self.cost_of(&object), move |view| read_link(view, &object)).await
    }

    async fn read(
        &self,
        caller: &Caller,
        object: &Locator,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        let (caller, object) = (caller.clone(), object.clone());
        if count > LIGHT_READ_BYTES {
            return self.look_once(move |view| read(view, &caller, &object, offset, count)).await;
        }
        let cost = self.cost_of(&object);
        self.show(cost, move |view| read(view, &caller, &object, offset, count)).await
    }

    async fn write(
        &self,
        caller: &Caller,
        object: &Locator,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let at = object.clone();
        let (bytes, durable) = (data.len(), stability != Stability::Unstable);
        let written = self.change(caller, self.cost_of(object), bytes, durable, move |edit| {
            write(edit, &at, offset, &data)
        });
        let written = written.await;
        match written {
            Err(error) => Outcome::err(error, self.unchanged(object).await),
            Ok(Committed { value, durable, verifier }) => {
                let committed = if durable { Stability::FileSync } else { Stability::Unstable };
                let count = u32::try_from(bytes).unwrap_or(u32::MAX);
                let result = value.result.map(|()| Written { count, committed, verifier });
                Outcome { result, context: value.context }
            }
        }
    }

    async fn create(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
        how: CreateHow,
    ) -> Outcome<Created, Wcc> {
        let (at, name) = (dir.clone(), name.to_vec());
        self.alter_at(caller, self.cost_of(dir), dir, move |edit| create(edit, &at, &name, how))
            .await
    }

    async fn make_node(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> Outcome<Created, Wcc> {
        let (at, name) = (dir.clone(), name.to_vec());
        self.alter_at(caller, self.cost_of(dir), dir, move |edit| {
            make_node(edit, &at, &name, &node, &set)
        })
        .await
    }

    async fn remove(&self, caller: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        let (at, name) = (dir.clone(), name.to_vec());
        self.alter_at(caller, self.cost_of(dir), dir, move |edit| remove(edit, &at, &name)).await
    }

    async fn rmdir(&self, caller: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        let (at, name) = (dir.clone(), name.to_vec());
        self.alter_at(caller, self.cost_of(dir), dir, move |edit| rmdir(edit, &at, &name)).await
    }

    async fn rename(
        &self,
        caller: &Caller,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
    ) -> Outcome<(), (Wcc, Wcc)> {
        self.rename_validated(caller, from, to, Vec::new()).await
    }

    async fn link(
        &self,
        caller: &Caller,
        object: &Locator,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        let (file, at, name) = (object.clone(), dir.clone(), name.to_vec());
        let linked =
            self.alter(caller, self.cost_of(object), move |edit| link(edit, &file, &at, &name));
        match linked.await {
            Ok(outcome) => outcome,
            Err(error) => {
                let attr = self.unchanged(object).await.after;
                Outcome::err(error, (attr, self.unchanged(dir).await))
            }
        }
    }

    async fn readdir(
        &self,
        caller: &Caller,
        dir: &Locator,
        cookie: Cookie,
        with_attrs: bool,
        mut take: impl FnMut(&Entry) -> bool + Send + 'static,
    ) -> Outcome<DirPage, Option<Attr>> {
        let (caller, dir) = (caller.clone(), dir.clone());
        let page = self.core.caches.begin_page(dir.fileid());
        self.look_once(move |view| {
            readdir(view, &caller, &dir, &page, cookie, with_attrs, &mut take)
        })
        .await
    }

    async fn fsstat(&self, _caller: &Caller, object: &Locator) -> Outcome<FsStat, Option<Attr>> {
        let (object, store) = (object.clone(), self.store.clone());
        let figures = self.show(self.cost_of(&object), move |view| match view.attr_of(&object) {
            Ok(attr) => {
                let figures = store.disk_usage().map_err(|error| from_store(&error));
                Outcome { result: figures, context: Some(attr) }
            }
            Err(error) => error.into_fs().into(),
        });
        let Outcome { result, context } = figures.await;
        match result {
            Ok(disk) => Outcome { result: Ok(self.limited(disk).await), context },
            Err(error) => Outcome { result: Err(error), context },
        }
    }

    async fn fsinfo(&self, caller: &Caller, object: &Locator) -> Outcome<FsInfo, Option<Attr>> {
        let max_file_bytes = self.core.quota.file_bytes(self.scope.file_bytes);
        let info = FsInfo { max_file_bytes, time_delta: Time { secs: 0, nanos: 1 } };
        match self.getattr(caller, object).await {
            Ok(attr) => Outcome::ok(info, Some(attr)),
            Err(error) => error.into(),
        }
    }

    async fn pathconf(&self, caller: &Caller, object: &Locator) -> Outcome<PathConf, Option<Attr>> {
        let max_name_bytes = crate::vfs::Name::MAX_BYTES as u32;
        match self.getattr(caller, object).await {
            Ok(attr) => Outcome::ok(PathConf { max_links: MAX_LINKS, max_name_bytes }, Some(attr)),
            Err(error) => error.into(),
        }
    }

    async fn commit(&self, caller: &Caller, object: &Locator) -> Outcome<WriteVerifier, Wcc> {
        let version = self.core.caches.version();
        let attr = match self.getattr(caller, object).await {
            Ok(attr) => attr,
            Err(error) => return error.into(),
        };
        let synced = self.worker.sync().await.map_err(|error| from_work(&error));
        // COMMIT changes nothing, but concurrent changes may: then "before" is omitted.
        let is_as_it_was = matches!(object, Locator::Delta(_))
            && version.is_some_and(|version| self.core.caches.is_at(version));
        let after =
            if is_as_it_was { Some(attr.clone()) } else { self.getattr(caller, object).await.ok() };
        let before = after.as_ref().filter(|after| **after == attr).map(Into::into);
        Outcome { result: synced, context: Wcc { before, after } }
    }
}
