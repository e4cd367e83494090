//! A pool of buffers for large requests.
//!
//! Fresh memory costs as much as receiving the data: the kernel maps it page by page, zero-filled,
//! and the allocator returns it after each large request. The pool keeps a handle to each buffer
//! that became a record, and reuses the buffer once no record refers to it.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};

use super::limits::{MAX_POOLED_BUFFERS, MIN_POOLED_BYTES, POOL_CHECK_INTERVAL};

/// Buffers of large requests, most of them still in use.
#[derive(Debug, Default)]
pub(super) struct RecordBufferPool(Mutex<PooledBuffers>);

#[derive(Debug, Default)]
struct PooledBuffers {
    /// Oldest first. Each shares its allocation with the record that was split off it.
    buffers: Vec<BytesMut>,
    /// Whether a buffer was taken or added since the last check.
    is_used: bool,
    /// Whether the task that frees unused buffers runs.
    is_watched: bool,
}

impl RecordBufferPool {
    /// An empty buffer with capacity for `bytes`, if the pool has an unreferenced one.
    pub fn take(&self, bytes: usize) -> Option<BytesMut> {
        if bytes < MIN_POOLED_BYTES {
            return None;
        }
        let mut kept = self.kept();
        let at = kept.buffers.iter_mut().position(|buffer| buffer.try_reclaim(bytes))?;
        kept.is_used = true;
        Some(kept.buffers.remove(at))
    }

    /// Adds the rest of a buffer whose record was split off. Some time after the last
    /// large request, the pool frees all buffers.
    pub fn keep(self: &Arc<Self>, mut buffer: BytesMut) {
        buffer.clear();
        let mut kept = self.kept();
        if kept.buffers.len() >= MAX_POOLED_BUFFERS {
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
            tokio::time::sleep(POOL_CHECK_INTERVAL).await;
            if self.let_go_of_unused() {
                return;
            }
        }
    }

    /// Frees all buffers unless one was used since the last check; returns whether it did.
    fn let_go_of_unused(&self) -> bool {
        let mut kept = self.kept();
        let is_used = std::mem::take(&mut kept.is_used);
        if !is_used {
            *kept = PooledBuffers::default();
        }
        !is_used
    }

    fn kept(&self) -> MutexGuard<'_, PooledBuffers> {
        // A panic cannot leave the pool inconsistent.
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record split off `buffer`; the pool keeps the rest.
    fn record(
        record_buffers: &Arc<RecordBufferPool>,
        mut buffer: BytesMut,
        content: u8,
    ) -> BytesMut {
        buffer.resize(MIN_POOLED_BYTES, content);
        let record = buffer.split_to(MIN_POOLED_BYTES - 1);
        record_buffers.keep(buffer);
        record
    }

    #[tokio::test]
    async fn what_held_a_record_is_there_again_when_nobody_has_it() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        let first = record(&record_buffers, BytesMut::new(), 1);
        assert!(record_buffers.take(MIN_POOLED_BYTES).is_none(), "it is in use");
        let held = first.as_ptr();
        let part = first.freeze().slice(10..20);
        assert!(record_buffers.take(MIN_POOLED_BYTES).is_none(), "a part of it is in use");
        assert_eq!(part[..], [1; 10]);
        drop(part);
        assert!(record_buffers.take(MIN_POOLED_BYTES - 1).is_none(), "a small one is left alone");
        assert!(record_buffers.take(100 * MIN_POOLED_BYTES).is_none(), "it is not so large");
        let again = record_buffers.take(MIN_POOLED_BYTES).expect("a buffer");
        assert!(again.is_empty() && again.capacity() >= MIN_POOLED_BYTES);
        assert!(record_buffers.take(MIN_POOLED_BYTES).is_none(), "it is taken");
        assert_eq!(record(&record_buffers, again, 2).as_ptr(), held);
    }

    #[tokio::test]
    async fn few_are_kept_and_none_for_long() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        for content in 0..2 * MAX_POOLED_BUFFERS {
            record(&record_buffers, BytesMut::new(), content as u8);
        }
        assert_eq!(record_buffers.kept().buffers.len(), MAX_POOLED_BUFFERS);
        assert!(!record_buffers.let_go_of_unused(), "some came");
        let taken = record_buffers.take(MIN_POOLED_BYTES).expect("a buffer");
        assert!(!record_buffers.let_go_of_unused(), "one was taken");
        record(&record_buffers, taken, 0);
        assert!(!record_buffers.let_go_of_unused(), "it came back");
        assert!(record_buffers.let_go_of_unused());
        assert!(record_buffers.take(MIN_POOLED_BYTES).is_none());
        // The empty pool works as a new one.
        record(&record_buffers, BytesMut::new(), 0);
        assert!(record_buffers.take(MIN_POOLED_BYTES).is_some());
    }

    #[tokio::test]
    async fn somebody_looks_at_them() {
        let record_buffers = Arc::new(RecordBufferPool::default());
        for _ in 0..2 {
            record(&record_buffers, BytesMut::new(), 0);
            for _ in 0..100 {
                tokio::time::sleep(POOL_CHECK_INTERVAL / 5).await;
                if record_buffers.kept().buffers.is_empty() {
                    break;
                }
            }
            assert!(record_buffers.kept().buffers.is_empty());
        }
    }
}
