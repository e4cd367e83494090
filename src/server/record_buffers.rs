//! Memory for large requests, used again once they are answered.
//!
//! Memory that is fresh costs as much as what arrives in it: the system maps it page by page,
//! filled with zeros, and the allocator gives it back with each large request that is done. So a
//! buffer that has become a record is remembered, and is there again when nobody has the record.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};

use super::limits::{MAX_SPARES, MIN_SPARE_BYTES, SPARE_AGE};

/// Buffers of large requests, most of them in use.
#[derive(Debug, Default)]
pub(super) struct RecordBufferPool(Mutex<KeptBuffer>);

#[derive(Debug, Default)]
struct KeptBuffer {
    /// Oldest first. Their memory is the records' that were in them.
    buffers: Vec<BytesMut>,
    /// Whether one was taken or came since it was looked at last.
    is_used: bool,
    /// Whether a task looks at them.
    is_watched: bool,
}

impl RecordBufferPool {
    /// An empty buffer with room for so many bytes, if there is one.
    pub fn take(&self, bytes: usize) -> Option<BytesMut> {
        if bytes < MIN_SPARE_BYTES {
            return None;
        }
        let mut kept = self.kept();
        let at = kept.buffers.iter_mut().position(|buffer| buffer.try_reclaim(bytes))?;
        kept.is_used = true;
        Some(kept.buffers.remove(at))
    }

    /// Keeps what is left of a buffer of which a record was taken. Where there is no large request
    /// from one look to the next ([`SPARE_AGE`]), all that are kept are let go of.
    pub fn keep(self: &Arc<Self>, mut buffer: BytesMut) {
        buffer.clear();
        let mut kept = self.kept();
        if kept.buffers.len() >= MAX_SPARES {
            kept.buffers.remove(0);
        }
        kept.buffers.push(buffer);
        kept.is_used = true;
        if !std::mem::replace(&mut kept.is_watched, true) {
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SPARE_AGE).await;
            if self.let_go_of_unused() {
                return;
            }
        }
    }

    /// Keeps none any more, if nothing was done with them since the last look; whether it was so.
    fn let_go_of_unused(&self) -> bool {
        let mut kept = self.kept();
        let is_used = std::mem::take(&mut kept.is_used);
        if !is_used {
            *kept = KeptBuffer::default();
        }
        !is_used
    }

    fn kept(&self) -> MutexGuard<'_, KeptBuffer> {
        // No change to them is ever half done.
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in `buffer`, of which the rest is kept.
    fn record(
        record_buffers: &Arc<RecordBufferPool>,
        mut buffer: BytesMut,
        content: u8,
    ) -> BytesMut {
        buffer.resize(MIN_SPARE_BYTES, content);
        let record = buffer.split_to(MIN_SPARE_BYTES - 1);
        record_buffers.keep(buffer);
        record
    }

    #[tokio::test]
    async fn what_held_a_record_is_there_again_when_nobody_has_it() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        let first = record(&record_buffers, BytesMut::new(), 1);
        assert!(record_buffers.take(MIN_SPARE_BYTES).is_none(), "it is in use");
        let held = first.as_ptr();
        let part = first.freeze().slice(10..20);
        assert!(record_buffers.take(MIN_SPARE_BYTES).is_none(), "a part of it is in use");
        assert_eq!(part[..], [1; 10]);
        drop(part);
        assert!(record_buffers.take(MIN_SPARE_BYTES - 1).is_none(), "a small one is left alone");
        assert!(record_buffers.take(100 * MIN_SPARE_BYTES).is_none(), "it is not so large");
        let again = record_buffers.take(MIN_SPARE_BYTES).expect("a buffer");
        assert!(again.is_empty() && again.capacity() >= MIN_SPARE_BYTES);
        assert!(record_buffers.take(MIN_SPARE_BYTES).is_none(), "it is taken");
        assert_eq!(record(&record_buffers, again, 2).as_ptr(), held);
    }

    #[tokio::test]
    async fn few_are_kept_and_none_for_long() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        for content in 0..2 * MAX_SPARES {
            record(&record_buffers, BytesMut::new(), content as u8);
        }
        assert_eq!(record_buffers.kept().buffers.len(), MAX_SPARES);
        assert!(!record_buffers.let_go_of_unused(), "some came");
        let taken = record_buffers.take(MIN_SPARE_BYTES).expect("a buffer");
        assert!(!record_buffers.let_go_of_unused(), "one was taken");
        record(&record_buffers, taken, 0);
        assert!(!record_buffers.let_go_of_unused(), "it came back");
        assert!(record_buffers.let_go_of_unused());
        assert!(record_buffers.take(MIN_SPARE_BYTES).is_none());
        // As from the beginning.
        record(&record_buffers, BytesMut::new(), 0);
        assert!(record_buffers.take(MIN_SPARE_BYTES).is_some());
    }

    #[tokio::test]
    async fn somebody_looks_at_them() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        for _ in 0..2 {
            record(&record_buffers, BytesMut::new(), 0);
            for _ in 0..100 {
                tokio::time::sleep(SPARE_AGE / 5).await;
                if record_buffers.kept().buffers.is_empty() {
                    break;
                }
            }
            assert!(record_buffers.kept().buffers.is_empty());
        }
    }
}
