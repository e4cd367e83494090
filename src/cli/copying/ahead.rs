//! Small files of the tree that are read many at a time: a snapshot for each costs more than its
//! content.

use std::collections::VecDeque;

use super::bulk::MAX_BULK_FILE_BYTES;
use super::{CopyObject, CopyPath, Copying};
use crate::control::limits::PIECE_BYTES;
use crate::delta::MergedPath;
use crate::inspect::opened::find;
use crate::vfs::FileKind;

/// Files that are read at a time.
const MAX_READ_AHEAD_FILES: usize = 256;

/// What was read, in the order in which it is copied; no content of a file that is not small, has
/// holes, or cannot be read.
#[derive(Debug, Default)]
pub(super) struct CopyReadAhead(VecDeque<(MergedPath, Option<Vec<u8>>)>);

impl Copying<'_> {
    /// The content of a small file of the tree without holes. `next` are the objects that are
    /// copied after it, the last one first.
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
        // What cannot be read is told by who copies it.
        let _looked = self.opened.look(|view| {
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
