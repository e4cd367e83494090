//! Pool of READ buffers, reused after their reply was sent.
//!
//! A fresh large buffer costs as much as the read itself: the kernel maps and zeroes it page by
//! page.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::limits::{KEPT_BUFFERS, MAX_KEPT_BYTES, MIN_KEPT_BYTES};

/// Free buffers.
#[derive(Default)]
pub(super) struct ReadBufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that returns to its pool on drop.
pub(super) struct PooledBuffer {
    /// Holds the previous reply's data until it is filled.
    data: Vec<u8>,
    pool: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ReadBufferPool {
    /// A buffer of `bytes` bytes with arbitrary content.
    pub fn take(&self, bytes: usize) -> PooledBuffer {
        let pool = Arc::clone(&self.0);
        let kept = match bytes {
            MIN_KEPT_BYTES.. => pool.lock().pop(),
            _ => None,
        };
        let mut data = kept.unwrap_or_default();
        data.resize(bytes, 0);
        PooledBuffer { data, pool }
    }
}

impl PooledBuffer {
    /// The whole buffer, to be filled.
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// The first `bytes` bytes, as reply data.
    pub fn into_bytes(mut self, bytes: usize) -> Bytes {
        self.data.truncate(bytes);
        if self.data.capacity() < MIN_KEPT_BYTES {
            return std::mem::take(&mut self.data).into();
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if (MIN_KEPT_BYTES..=MAX_KEPT_BYTES).contains(&self.data.capacity()) {
            let mut pool = self.pool.lock();
            if pool.len() < KEPT_BUFFERS {
                pool.push(std::mem::take(&mut self.data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_and_few_are_kept() {
        let buffers = ReadBufferPool::default();
        let replies: Vec<Bytes> = (0..2 * KEPT_BUFFERS)
            .map(|n| {
                let mut buffer = buffers.take(MIN_KEPT_BYTES);
                buffer.as_mut().fill(n as u8);
                buffer.into_bytes(MIN_KEPT_BYTES - 1)
            })
            .collect();
        for (n, reply) in replies.iter().enumerate() {
            assert!(reply.len() == MIN_KEPT_BYTES - 1 && reply.iter().all(|&b| b == n as u8));
        }
        let copy = replies[0].slice(1..);
        drop(replies);
        assert_eq!(buffers.0.lock().len(), KEPT_BUFFERS);
        assert_eq!(copy[0], 0, "still in use");
        let again = buffers.take(2 * MIN_KEPT_BYTES);
        assert_eq!(again.as_ref().len(), 2 * MIN_KEPT_BYTES);
        assert_eq!(buffers.0.lock().len(), KEPT_BUFFERS - 1);
        drop(buffers.take(10));
        assert_eq!(buffers.0.lock().len(), KEPT_BUFFERS - 1, "a small one is not kept");
    }
}
