//! Reads many small files of the tree in one snapshot: a snapshot per file costs more than its
//! content.

use std::collections::VecDeque;

use super::bulk::MAX_BULK_FILE_BYTES;
use super::{CopyObject, CopyPath, Copying};
use crate::control::limits::PIECE_BYTES;
use crate::delta::MergedPath;
use crate::inspect::opened::find;
use crate::vfs::FileKind;

/// The most files that are read in one snapshot.
const MAX_READ_AHEAD_FILES: usize = 256;

/// Files that were read, in the order of copying. Content is `None` for files that are large, have
/// holes, or cannot be read.
#[derive(Debug, Default)]
pub(super) struct CopyReadAhead(VecDeque<(MergedPath, Option<Vec<u8>>)>);

impl Copying<'_> {
    /// The content of a small file of the tree without holes. `next` is the stack of objects that
    /// are copied after it.
    pub(super) fn read_ahead(
        &mut self,
        file: &CopyObject,
        next: &[(CopyObject, CopyPath)],
    ) -> Option<Vec<u8>> {
        let CopyPath::Tree(path) = &file.place else { return None };
        if self.ahead.0.front().is_none_or(|(first, _)| first != path) {
            self.ahead.0 = self.read_all(path, next);
        }
        self.ahead.0.pop_front()?.1
    }

    fn read_all(
        &self,
        first: &MergedPath,
        next: &[(CopyObject, CopyPath)],
    ) -> VecDeque<(MergedPath, Option<Vec<u8>>)> {
        let paths = next.iter().rev().map_while(|(object, _)| match &object.place {
            CopyPath::Tree(path) if object.kind == FileKind::Regular => Some(path),
            _ => None,
        });
        let mut bytes = 0;
        let mut read = VecDeque::new();
        // Errors are reported when the file itself is copied.
        let _looked = self.opened.with_tree(|view| {
            for path in std::iter::once(first).chain(paths).take(MAX_READ_AHEAD_FILES) {
                let content = find(view, path).ok().and_then(|file| {
                    let attr = file.attr();
                    let is_fit = attr.kind == FileKind::Regular
                        && attr.size <= MAX_BULK_FILE_BYTES
                        && attr.used >= attr.size;
                    let mut content =
                        vec![0; if is_fit { attr.size as usize } else { return None }];
                    let got = view.read(&file, 0, &mut content).ok()?;
                    (got == content.len()).then_some(content)
                });
                bytes += content.as_ref().map_or(0, Vec::len);
                read.push_back((path.clone(), content));
                if bytes >= PIECE_BYTES {
                    break;
                }
            }
            Ok(())
        });
        read
    }
}
