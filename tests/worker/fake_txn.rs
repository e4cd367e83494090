//! The fake store's rows: of all tables, only symbolic link targets, as numbers to bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use acetate::base::BasePath;
use acetate::delta::{
    AuditRow, CheckpointId, CheckpointSpace, CopyUp, Ino, InodeRow, Limits, MadeCheckpoint,
    MergedPath, NewCheckpoint, Original, PendingCopies, ReadTxn, RestoreOutcome, RestorePaths,
    RestoreRequest, StoreError, UnsavedContent, UsageDelta, Whiteouts, WriteTxn,
};
use acetate::vfs::{FileId, Name, Time};

type Result<T> = std::result::Result<T, StoreError>;

#[derive(Clone)]
pub struct Rows(pub BTreeMap<Ino, Vec<u8>>);

impl ReadTxn for Rows {
    fn chunk_bytes(&self) -> u64 {
        unimplemented!()
    }

    fn hold(&self) -> Result<()> {
        Ok(())
    }

    fn inode(&self, _: Ino) -> Result<Option<InodeRow>> {
        unimplemented!()
    }

    fn dentry(&self, _: Ino, _: &Name) -> Result<Option<Ino>> {
        unimplemented!()
    }

    fn dentries(&self, _: Ino, _: &mut dyn FnMut(Name, Ino, u32, FileId)) -> Result<()> {
        unimplemented!()
    }

    fn has_dentries(&self, _: Ino) -> Result<bool> {
        unimplemented!()
    }

    fn names_of(&self, _: Ino) -> Result<Vec<(Ino, Name)>> {
        unreachable!("no operation here asks")
    }

    fn name_of(&self, _: Ino) -> Result<Option<(Ino, Name)>> {
        unimplemented!()
    }

    fn read_data(&self, _: &InodeRow, _: u64, _: &mut [u8]) -> Result<()> {
        unimplemented!()
    }

    fn stored_chunks(&self, _: Ino, _: &Range<u64>) -> Result<Vec<u64>> {
        unimplemented!()
    }

    fn next_stored_chunk(&self, _: Ino, _: u64) -> Result<Option<u64>> {
        unimplemented!()
    }

    fn count_stored_chunks(&self, _: Ino, _: &Range<u64>) -> Result<u64> {
        unimplemented!()
    }

    fn pending_copy(&self, _: Ino) -> Result<Option<Ino>> {
        unimplemented!()
    }

    fn checkpoint_space(&self) -> Result<Option<CheckpointSpace>> {
        unimplemented!()
    }

    fn pending_copies(&self) -> Result<PendingCopies> {
        unimplemented!()
    }

    fn symlink(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(&ino).cloned())
    }

    fn is_whited_out(&self, _: &MergedPath) -> Result<bool> {
        unimplemented!()
    }

    fn whited_out_at(&self, _: &MergedPath) -> Result<Option<i64>> {
        unimplemented!()
    }

    fn whiteouts_in(&self, _: &MergedPath) -> Result<Vec<Name>> {
        unimplemented!()
    }

    fn whiteout_parents(&self) -> Result<Vec<MergedPath>> {
        unimplemented!()
    }

    fn whiteouts_below(&self, _: &MergedPath, _: u32) -> Result<Whiteouts> {
        unimplemented!()
    }

    fn copied_links(&self) -> Result<Vec<Ino>> {
        unimplemented!()
    }

    fn copied_single_names(&self) -> Result<Vec<Ino>> {
        unimplemented!()
    }

    fn copied_up(&self, _: FileId) -> Result<Vec<Ino>> {
        unimplemented!()
    }

    fn redirect(&self, _: Ino) -> Result<Option<BasePath>> {
        unimplemented!()
    }

    fn redirects(&self) -> Result<Vec<Ino>> {
        unimplemented!()
    }

    fn opaque_since(&self, _: Ino) -> Result<Option<i64>> {
        unimplemented!()
    }

    fn opaque_dirs(&self) -> Result<Vec<Ino>> {
        unimplemented!()
    }

    fn count_whiteouts(&self, _: &MergedPath, _: usize) -> Result<usize> {
        unimplemented!()
    }

    fn sparse_file(&self, _: Ino) -> Result<Option<Ino>> {
        unimplemented!()
    }

    fn redirected_to(&self, _: &BasePath) -> Result<Option<Ino>> {
        unimplemented!()
    }

    fn has_redirect_within(&self, _: &BasePath) -> Result<bool> {
        unimplemented!()
    }

    fn copied_up_dirs(&self) -> Result<Vec<BasePath>> {
        unimplemented!()
    }

    fn hidden_links(&self, _: FileId) -> Result<(u32, Option<Time>)> {
        unimplemented!()
    }

    fn hidden_files(&self) -> Result<Vec<FileId>> {
        unimplemented!()
    }

    fn original(&self, _: &BasePath) -> Result<Option<Original>> {
        unimplemented!()
    }

    fn has_copied_file_within(&self, _: &BasePath) -> Result<bool> {
        unimplemented!()
    }

    fn original_content(&self, _: &BasePath) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }

    fn original_bytes(&self) -> Result<u64> {
        unimplemented!()
    }

    fn limits(&self) -> Result<Limits> {
        unimplemented!()
    }
}

impl WriteTxn for Rows {
    fn allocate_ino(&mut self) -> Result<Ino> {
        unimplemented!()
    }

    fn put_inode(&mut self, _: &InodeRow) -> Result<()> {
        unimplemented!()
    }

    fn delete_inode(&mut self, _: Ino) -> Result<()> {
        unimplemented!()
    }

    fn insert_dentry(&mut self, _: Ino, _: &Name, _: Ino) -> Result<()> {
        unimplemented!()
    }

    fn delete_dentry(&mut self, _: Ino, _: &Name) -> Result<()> {
        unimplemented!()
    }

    fn move_dentry(&mut self, _: (Ino, &Name), _: (Ino, &Name), _: Ino) -> Result<()> {
        unimplemented!()
    }

    fn write_data(&mut self, _: &mut InodeRow, _: u64, _: &[u8]) -> Result<()> {
        unimplemented!()
    }

    fn truncate(&mut self, _: &mut InodeRow, _: u64) -> Result<()> {
        unimplemented!()
    }

    fn put_copy_up(&mut self, _: Ino, _: Option<CopyUp>) -> Result<()> {
        unimplemented!()
    }

    fn put_symlink(&mut self, ino: Ino, target: &[u8]) -> Result<()> {
        self.0.insert(ino, target.to_vec());
        Ok(())
    }

    fn add_whiteout(&mut self, _: &MergedPath, _: Time) -> Result<()> {
        unimplemented!()
    }

    fn remove_whiteout(&mut self, _: &MergedPath) -> Result<Option<i64>> {
        unimplemented!()
    }

    fn remove_whiteouts_below(&mut self, _: &MergedPath) -> Result<()> {
        unimplemented!()
    }

    fn move_whiteouts_below(&mut self, _: &MergedPath, _: &MergedPath) -> Result<()> {
        unimplemented!()
    }

    fn put_opaque(&mut self, _: Ino, _: Time) -> Result<()> {
        unimplemented!()
    }

    fn remove_opaque(&mut self, _: Ino) -> Result<()> {
        unimplemented!()
    }

    fn put_redirect(&mut self, _: Ino, _: &BasePath) -> Result<()> {
        unimplemented!()
    }

    fn put_original(&mut self, _: &Original, _: Option<&[u8]>) -> Result<bool> {
        unimplemented!()
    }

    fn remove_originals(&mut self, _: &BasePath) -> Result<u64> {
        unimplemented!()
    }

    fn rename_originals(&mut self, _: &BasePath, _: &BasePath) -> Result<()> {
        unimplemented!()
    }

    fn show_origins(&mut self, _: bool) -> Result<()> {
        unimplemented!()
    }

    fn remove_redirect(&mut self, _: Ino) -> Result<()> {
        unimplemented!()
    }

    fn hide_link(&mut self, _: FileId, _: Time) -> Result<()> {
        unimplemented!()
    }

    fn count_hidden(&mut self, _: FileId, _: u32) -> Result<()> {
        unimplemented!()
    }

    fn growth(&self) -> UsageDelta {
        unimplemented!()
    }

    fn put_limits(&mut self, _: Limits) -> Result<()> {
        unimplemented!()
    }

    fn create_checkpoint(&mut self, _: &NewCheckpoint) -> Result<MadeCheckpoint> {
        unimplemented!()
    }

    fn put_copied(&mut self, _: Option<Ino>) -> Result<()> {
        unimplemented!()
    }

    fn prepare_restore(&mut self, _: &RestoreRequest) -> Result<Option<RestoreOutcome>> {
        unimplemented!()
    }

    fn restore(&mut self, _: &RestoreRequest, _: Option<&RestorePaths>) -> Result<RestoreOutcome> {
        unimplemented!()
    }

    fn remove_checkpoint(&mut self, _: CheckpointId) -> Result<bool> {
        unimplemented!()
    }

    fn has_unsaved(&mut self, _: UnsavedContent, _: u64) -> Result<bool> {
        unimplemented!()
    }

    fn save_content(&mut self, _: UnsavedContent, _: usize) -> Result<Option<UnsavedContent>> {
        unimplemented!()
    }

    fn is_changed_since(&mut self, _: i64) -> Result<bool> {
        unimplemented!()
    }

    fn keep_checkpoint(&mut self, _: CheckpointId) -> Result<bool> {
        unimplemented!()
    }

    fn free_removed(&mut self, _: u32) -> Result<bool> {
        unimplemented!()
    }

    fn bound_audit(&mut self, _: bool) {}

    fn prune_audit(&mut self, _: i64, _: Time, _: u32) -> Result<u64> {
        unimplemented!()
    }

    fn record(&mut self, _: &AuditRow) -> Result<()> {
        unimplemented!()
    }
}
