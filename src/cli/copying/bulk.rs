//! Writes small objects to the tree, many per request.

use std::fs::File;

use super::super::error::CliError;
use super::{CopyObject, CopyPath, Copying};
use crate::control::limits::{BULK_ITEMS, PIECE_BYTES};
use crate::control::{Answer, ContentPart, ItemKind, MakeItem, Reading, Request};

/// The largest file that is sent with others, in bytes.
pub(super) const MAX_BULK_FILE_BYTES: u64 = 256 << 10;

/// The objects of the next request.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    items: Vec<MakeItem>,
    /// The index of each item's source.
    sources: Vec<usize>,
    /// The concatenated content of the files.
    content: Vec<u8>,
}

impl Copying<'_> {
    /// Queues an object for the next request.
    ///
    /// # Errors
    /// An object of this source could not be created.
    pub(super) fn put(&mut self, item: MakeItem, content: &[u8]) -> Result<(), CliError> {
        let bytes = self.bulk.content.len() + content.len();
        if self.bulk.items.len() >= BULK_ITEMS || bytes > PIECE_BYTES {
            self.flush()?;
            self.check_source()?;
        }
        self.bulk.items.push(item);
        self.bulk.sources.push(self.source);
        self.bulk.content.extend_from_slice(content);
        Ok(())
    }

    /// Sends the queued objects.
    ///
    /// # Errors
    /// The request failed; how much of it was done is unknown.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        while !self.bulk.items.is_empty() {
            let Bulk { items, sources, content } = std::mem::take(&mut self.bulk);
            let request = Request::Make { items: items.clone() };
            let answer = self.changer()?.ask_with(request, Reading::stream(&content[..]))?;
            let Answer::Made { items: made, refusal } = answer else {
                return Err(CliError::new("unexpected reply from the session's server"));
            };
            let made = usize::try_from(made).unwrap_or(usize::MAX).min(items.len());
            for item in &items[..made] {
                self.count(u64::from(item.kind != ItemKind::Any), item.bytes());
            }
            if let (Some(refusal), Some(source)) = (refusal, sources.get(made).copied()) {
                self.failed.push((source, refusal.into()));
                self.put_back(made + 1, source, items.into_iter().zip(sources), &content);
            }
        }
        Ok(())
    }

    /// Queues the items from index `from` on again, except those of the source `failed`.
    fn put_back(
        &mut self,
        from: usize,
        failed: usize,
        items: impl Iterator<Item = (MakeItem, usize)>,
        mut content: &[u8],
    ) {
        for (at, (item, source)) in items.enumerate() {
            let (own, rest) = content.split_at(item.bytes() as usize);
            content = rest;
            if at >= from && source != failed {
                self.bulk.items.push(item);
                self.bulk.sources.push(source);
                self.bulk.content.extend_from_slice(own);
            }
        }
    }

    /// Fails if an object of the current source could not be created.
    pub(super) fn check_source(&mut self) -> Result<(), CliError> {
        let of_this = |(source, _): &(usize, CliError)| *source == self.source;
        match self.failed.iter().position(of_this) {
            Some(at) => Err(self.failed.swap_remove(at).1),
            None => Ok(()),
        }
    }

    /// The content of a small file without holes. `next` is the stack of objects that are copied
    /// after it.
    pub(super) fn small_content(
        &mut self,
        file: &CopyObject,
        next: &[(CopyObject, CopyPath)],
    ) -> Option<Vec<u8>> {
        if file.size > MAX_BULK_FILE_BYTES {
            return None;
        }
        let CopyPath::Host(path) = &file.place else { return self.read_ahead(file, next) };
        let mut reading = File::open(path).and_then(Reading::file).ok()?;
        let content = match reading.part().ok()? {
            ContentPart::Data(content) if content.len() as u64 <= MAX_BULK_FILE_BYTES => content,
            _ => return None,
        };
        let is_whole = content.is_empty() || reading.part().ok()? == ContentPart::END;
        is_whole.then(|| content.into())
    }
}
