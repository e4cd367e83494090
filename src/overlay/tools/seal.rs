//! Sealing: rewrites a session so that the specification's tables alone describe the merged tree.
//!
//! Redirects are folded ([`fold`](self::fold)), opaque marks become whiteouts
//! ([`marks`](self::marks)), hard links that only the base has get dentries, pending content is
//! copied, and holes are filled with zeros. The merged tree stays the same, including file numbers
//! and times.
//!
//! Each step is one transaction that leaves a valid session. An interrupted seal starts over and
//! finds less to do.

mod fold;
mod marks;

use std::sync::Arc;

use crate::base::{Base, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath, WriteTxn};
use crate::vfs::{Caller, FileKind, FsError, Name};

use crate::overlay::edit::Edit;
use crate::overlay::error::{OpError, Result};
use crate::overlay::followed::settle;
use crate::overlay::limits::CopyLimits;
use crate::overlay::node::{Child, DirPlace, Node};
use crate::overlay::resolve::View;
use crate::overlay::{Clock, Core, copy_up_background};

use crate::overlay::base_names::{add_entry_at_base_name, detect_new_links};
use crate::overlay::copy_up::copy_up;
use crate::overlay::copy_up_pending::missing_chunks;
use crate::overlay::memo::NoMemo;
use fold::Fold;
use marks::Mark;

/// Objects that one step creates.
const STEP_OBJECTS: u64 = 256;

/// Bytes that one step writes; its last object may exceed this.
const STEP_BYTES: u64 = 8 << 20;

/// Chunks that one query scans for missing ones.
const WINDOW_CHUNKS: u64 = 1024;

/// Number of unfinished files that are listed by name.
const MAX_UNFINISHED_NAMED: usize = 100;

/// Totals of a seal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sealed {
    /// Directories that had a redirect.
    pub redirects: u64,
    /// Directories with an opaque mark.
    pub opaque: u64,
    /// Objects copied up because an ancestor was renamed.
    pub copied: u64,
    /// Hard links of base files that got a dentry.
    pub names: u64,
    /// Files whose copy-up was finished.
    pub finished: u64,
    /// Bytes copied from the base.
    pub copied_bytes: u64,
    /// Bytes of zeros stored for holes.
    pub zero_bytes: u64,
    /// Files that lost pending content because the base changed.
    pub unfinished: u64,
    /// The first of these, by path.
    pub first_unfinished: Vec<MergedPath>,
}

/// Why sealing stopped, and at which object.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct SealError {
    /// The object's path.
    pub path: MergedPath,
    /// The error.
    pub source: FsError,
}

/// What the caller must do with the transaction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealStep {
    /// Commit and continue.
    Made,
    /// Roll back and continue.
    Skipped,
    /// Roll back: sealing is complete.
    Over,
}

/// A seal in progress. Its state is valid only if the caller commits each step that says so and
/// nothing else changes the session.
pub struct Sealing {
    core: Core,
    caller: Caller,
    stage: SealStage,
    done: Sealed,
    /// Budget left in the current step.
    objects_left: u64,
    bytes_left: u64,
}

enum SealStage {
    Begin,
    /// Directories with a redirect; the deepest is last and is folded first.
    Folds {
        left: Vec<Ino>,
        fold: Option<Fold>,
    },
    /// Opaque directories; the outermost is last and is replaced first.
    Marks {
        left: Vec<Ino>,
        mark: Option<Mark>,
    },
    /// Copied-up hard-linked files; base names to check of one of them.
    Links {
        left: Vec<Ino>,
        paths: Vec<BasePath>,
    },
    /// Pending content, from this inode on.
    Copies(Ino),
    /// Holes, from this chunk of this inode on.
    Holes(Ino, u64),
    Over,
}

impl Sealing {
    /// Starts a seal of a session over `base`.
    pub fn new(base: Arc<dyn Base>, clock: Clock) -> Self {
        // One background piece is one step.
        let limits = CopyLimits { piece_bytes: STEP_BYTES, ..CopyLimits::default() };
        Self {
            core: Core::offline(base, clock, limits),
            caller: Caller::owner(0, 0),
            stage: SealStage::Begin,
            done: Sealed::default(),
            objects_left: 0,
            bytes_left: 0,
        }
    }

    /// Totals so far.
    pub fn done(&self) -> &Sealed {
        &self.done
    }

    /// Runs the next step in `txn`.
    ///
    /// # Errors
    /// The session or the base cannot be read, or the session is full. The transaction must not be
    /// committed, and this object must not be used further.
    pub fn step(&mut self, txn: &mut dyn WriteTxn) -> std::result::Result<SealStep, SealError> {
        (self.objects_left, self.bytes_left) = (STEP_OBJECTS, STEP_BYTES);
        let mut at = MergedPath::root();
        self.advance(txn, &mut at).map_err(|error| SealError { path: at, source: error.into_fs() })
    }

    fn advance(&mut self, txn: &mut dyn WriteTxn, at: &mut MergedPath) -> Result<SealStep> {
        match std::mem::replace(&mut self.stage, SealStage::Over) {
            SealStage::Begin => {
                settle(&mut self.edit(txn), &|_, _| true)?;
                let view = View { txn, core: &self.core, memo: &NoMemo, scope: &self.core.whole };
                self.stage = SealStage::Folds { left: fold::redirected(&view)?, fold: None };
            }
            SealStage::Folds { left, fold } => self.fold(txn, left, fold, at)?,
            SealStage::Marks { left, mark } => self.replace_marks(txn, left, mark, at)?,
            SealStage::Links { left, paths } => self.link(txn, left, paths, at)?,
            SealStage::Copies(from) => return self.copy(txn, from, at),
            SealStage::Holes(ino, chunk) => self.fill(txn, ino, chunk, at)?,
            SealStage::Over => return Ok(SealStep::Over),
        }
        Ok(SealStep::Made)
    }

    fn is_spent(&self) -> bool {
        self.objects_left == 0 || self.bytes_left == 0
    }

    fn spend(&mut self, bytes: u64) {
        self.objects_left = self.objects_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.done.copied_bytes += bytes;
    }

    fn edit<'e>(&'e self, txn: &'e mut dyn WriteTxn) -> Edit<'e> {
        Edit::new(txn, &self.core, &self.core.whole, &self.caller, (self.core.clock)())
    }

    /// Gives a visible name a dentry, if it has none. Returns the row if the object is a directory.
    fn settle(
        &mut self,
        txn: &mut dyn WriteTxn,
        place: &DirPlace,
        name: &Name,
    ) -> Result<Option<InodeRow>> {
        let mut edit = self.edit(txn);
        let Some(Child { node, has_dentry }) = edit.view().child(place, name)? else {
            return Ok(None);
        };
        let is_dir = node.is_dir();
        match node {
            Node::Delta(row) if has_dentry => Ok(is_dir.then_some(*row)),
            Node::Delta(row) => {
                add_name(&mut edit, place, name, *row)?;
                self.done.names += 1;
                self.spend(0);
                Ok(None)
            }
            Node::Base { .. } => {
                let row = copy_up(&mut edit, node)?;
                if !is_dir {
                    edit.txn.put_inode(&row)?;
                }
                // Pending content is counted when it is copied.
                let is_copied = row.kind == FileKind::Regular && row.copy_up.is_none();
                self.done.copied += 1;
                self.spend(if is_copied { row.size } else { 0 });
                Ok(is_dir.then_some(*row))
            }
        }
    }

    /// Gives dentries to names that copied-up files have only in the base. Programs that know only
    /// the specification's tables would show the base file there.
    fn link(
        &mut self,
        txn: &mut dyn WriteTxn,
        mut left: Vec<Ino>,
        mut paths: Vec<BasePath>,
        at: &mut MergedPath,
    ) -> Result<()> {
        while !self.is_spent() {
            let Some(path) = paths.pop() else {
                let Some(ino) = left.pop() else {
                    self.stage = SealStage::Copies(Ino(0));
                    return Ok(());
                };
                paths = self.names_in_base(txn, ino)?;
                continue;
            };
            let Some((above, name)) = path.split() else { continue };
            let place = self.edit(txn).view().place_of_base(&above)?;
            if let Some(place) = place {
                *at = place.merged.join(&name);
                self.settle(txn, &place, &name)?;
            }
        }
        self.stage = SealStage::Links { left, paths };
        Ok(())
    }

    /// The base names of a copied-up file, if any of them may be visible.
    fn names_in_base(&self, txn: &mut dyn WriteTxn, ino: Ino) -> Result<Vec<BasePath>> {
        let mut paths = Vec::new();
        let Some(mut row) = txn.inode(ino)? else { return Ok(paths) };
        if detect_new_links(&mut self.edit(txn), &mut row)? {
            txn.put_inode(&row)?;
        }
        let Some(origin) = &row.origin else { return Ok(paths) };
        let (hidden, _) = txn.hidden_links(origin.fileid)?;
        if hidden < origin.nlink {
            self.core.base.find_linked(origin.fileid, &mut |path| {
                paths.push(path.clone());
                false
            })?;
        }
        Ok(paths)
    }

    /// Copies one piece of pending content.
    fn copy(&mut self, txn: &mut dyn WriteTxn, from: Ino, at: &mut MergedPath) -> Result<SealStep> {
        let Some(ino) = txn.pending_copy(from)? else {
            self.stage = SealStage::Holes(Ino(0), 0);
            return Ok(SealStep::Made);
        };
        let Some(row) = txn.inode(ino)? else {
            txn.put_copy_up(ino, None)?;
            self.stage = SealStage::Copies(ino);
            return Ok(SealStep::Made);
        };
        *at = self.edit(txn).path_of(&row).unwrap_or_else(|_| MergedPath::root());
        let left = |row: &InodeRow| row.copy_up.map_or(0, |pending| pending.end - pending.next);
        let before = left(&row);
        match copy_up_background::copy_piece(&self.core, txn, row) {
            Ok(is_last) => {
                let after = txn.inode(ino)?.map_or(0, |row| left(&row));
                self.done.copied_bytes += before.saturating_sub(after);
                self.done.finished += u64::from(is_last);
                self.stage = SealStage::Copies(ino);
                Ok(SealStep::Made)
            }
            Err(OpError::Lost) => {
                self.done.unfinished += 1;
                if self.done.first_unfinished.len() < MAX_UNFINISHED_NAMED {
                    self.done.first_unfinished.push(at.clone());
                }
                self.stage = SealStage::Copies(Ino(ino.0 + 1));
                Ok(SealStep::Skipped)
            }
            Err(error) => Err(error),
        }
    }

    /// Stores zeros for missing chunks.
    fn fill(
        &mut self,
        txn: &mut dyn WriteTxn,
        from: Ino,
        mut chunk: u64,
        at: &mut MergedPath,
    ) -> Result<()> {
        let Some(ino) = txn.sparse_file(from)? else { return Ok(()) };
        if ino != from {
            chunk = 0;
        }
        let mut row = self.edit(txn).view().inode(ino)?;
        self.stage = SealStage::Holes(Ino(ino.0 + 1), 0);
        // Missing chunks of such a file may have data in the base.
        if row.copy_up.is_some() {
            return Ok(());
        }
        *at = self.edit(txn).path_of(&row).unwrap_or_else(|_| MergedPath::root());
        let chunk_bytes = txn.chunk_bytes();
        let chunks = row.size.div_ceil(chunk_bytes);
        let step_chunks = (STEP_BYTES / chunk_bytes).max(1);
        let (mut looked, mut filled) = (chunk, 0);
        while looked < chunks && filled < step_chunks {
            let window = looked..chunks.min(looked.saturating_add(WINDOW_CHUNKS.min(step_chunks)));
            looked = window.end;
            for run in missing_chunks(&self.edit(txn).view(), ino, window)? {
                let start = run.start * chunk_bytes;
                let length = run.end.saturating_mul(chunk_bytes).min(row.size) - start;
                txn.write_data(&mut row, start, &vec![0; length as usize])?;
                filled += run.end - run.start;
                self.done.zero_bytes += length;
            }
        }
        if filled > 0 {
            txn.put_inode(&row)?;
        }
        if looked < chunks {
            self.stage = SealStage::Holes(ino, looked);
        }
        Ok(())
    }
}

/// Adds a dentry for a name that only the base had. The merged tree does not change.
fn add_name(edit: &mut Edit<'_>, place: &DirPlace, name: &Name, mut row: InodeRow) -> Result<()> {
    let since = match &row.origin {
        Some(origin) => edit.txn.hidden_links(origin.fileid)?.1,
        None => None,
    };
    let since = since.unwrap_or(row.ctime);
    add_entry_at_base_name(edit, &mut row, (place, name), since)?;
    Ok(edit.txn.put_inode(&row)?)
}
