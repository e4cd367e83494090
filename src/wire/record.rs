//! Record marking: delimits RPC messages on a byte stream (RFC 5531 §11).
//!
//! [`RecordReader`] assembles records from received bytes. It does no I/O, and checks a fragment's
//! claimed length before any memory is allocated for it.

use bytes::{Buf, Bytes, BytesMut};

use super::nfs3::MAX_ARGS_BYTES;

/// Upper bound of an RPC header with credentials in bytes, with some reserve.
pub const MAX_HEADER_BYTES: usize = 4 << 10;

/// Bytes of the largest legal request: a WRITE with all its data.
pub const MAX_RECORD_BYTES: usize = MAX_HEADER_BYTES + MAX_ARGS_BYTES;

/// Upper bound of the fragments of one record, empty ones included.
pub const MAX_FRAGMENTS: usize = 8 << 10;

/// Size of a fragment's header, in bytes.
pub const MARK_BYTES: usize = 4;

/// Bytes of a record in several fragments that are buffered before the maximum is allocated.
const GATHERED_BYTES: usize = 32 << 10;

/// The bit of a fragment's header that marks the last fragment of a record.
const LAST_FRAGMENT: u32 = 1 << 31;

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record claims to be larger than any legal request.
    #[error("a record claims {claimed_bytes} bytes, more than the {limit_bytes} allowed")]
    TooLong {
        /// The sum of the fragments' lengths so far.
        claimed_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A record has too many fragments.
    #[error("a record comes in more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

/// Assembles records from fragments.
#[derive(Debug)]
pub struct RecordReader {
    limit_bytes: usize,
    /// The fragment whose header was read: remaining bytes, and whether it is the last one.
    fragment: Option<(usize, bool)>,
    /// Number of fragments of the record so far.
    fragments: usize,
    /// The content of earlier fragments of the record.
    assembled: BytesMut,
}

impl RecordReader {
    /// A reader at the start of a stream whose records have at most `limit_bytes` bytes.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, fragment: None, fragments: 0, assembled: BytesMut::new() }
    }

    /// Consumes bytes from the front of `input`; returns the next record once it is complete.
    ///
    /// A record of one fragment is a slice of `input`, without a copy. After an error the position
    /// in the stream is lost, so the connection must be closed.
    pub fn next_record(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, RecordError> {
        loop {
            let Some((left, last)) = self.fragment else {
                if input.len() < MARK_BYTES {
                    return Ok(None);
                }
                self.begin_fragment(input.get_u32())?;
                continue;
            };
            if self.is_slice(last) {
                if input.len() < left {
                    return Ok(None);
                }
                self.reset();
                return Ok(Some(input.split_to(left).freeze()));
            }
            let taken = left.min(input.len());
            self.make_space(taken);
            self.assembled.extend_from_slice(&input[..taken]);
            input.advance(taken);
            if taken < left {
                self.fragment = Some((left - taken, last));
                return Ok(None);
            }
            self.fragment = None;
            if last {
                let record = std::mem::take(&mut self.assembled).freeze();
                self.reset();
                return Ok(Some(record));
            }
        }
    }

    /// Upper bound of the current record's bytes, once its first header was read: its length if it
    /// has one fragment, otherwise the limit.
    pub fn reserved_bytes(&self) -> Option<usize> {
        match self.fragment {
            Some((left, true)) if self.fragments == 1 => Some(left),
            None if self.fragments == 0 => None,
            _ => Some(self.limit_bytes),
        }
    }

    /// The bytes of the current record received so far, in `input` and in this reader.
    pub fn arrived_bytes(&self, input: &BytesMut) -> usize {
        self.assembled.len() + if self.fragments > 0 { input.len() } else { 0 }
    }

    /// The bytes that must arrive in addition to `input` before the reader can continue.
    pub fn missing_bytes(&self, input: &BytesMut) -> usize {
        let wanted = match self.fragment {
            None => MARK_BYTES,
            Some((left, last)) if self.is_slice(last) => left,
            // Copied as it arrives, so that a record does not occupy two buffers.
            Some(_) => 1,
        };
        wanted.saturating_sub(input.len())
    }

    /// Whether a part of a record was received, in `input` or in this reader.
    pub fn is_mid_record(&self, input: &BytesMut) -> bool {
        self.fragments > 0 || !input.is_empty()
    }

    /// Whether the current fragment is the only one and becomes a record without a copy.
    fn is_slice(&self, last: bool) -> bool {
        last && self.assembled.is_empty()
    }

    /// Reserves space for `bytes` more bytes of content.
    fn make_space(&mut self, bytes: usize) {
        let wanted = self.assembled.len() + bytes;
        if wanted > self.assembled.capacity() {
            // Little at first, then the maximum at once: repeated doubling would copy more.
            let all = if wanted <= GATHERED_BYTES { GATHERED_BYTES } else { self.limit_bytes };
            self.assembled.reserve(all.max(wanted) - self.assembled.len());
        }
    }

    fn begin_fragment(&mut self, mark: u32) -> Result<(), RecordError> {
        let claimed = (mark & !LAST_FRAGMENT) as usize;
        let claimed_bytes = self.assembled.len().saturating_add(claimed);
        if claimed_bytes > self.limit_bytes {
            return Err(RecordError::TooLong { claimed_bytes, limit_bytes: self.limit_bytes });
        }
        if self.fragments >= MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
        }
        self.fragments += 1;
        self.fragment = Some((claimed, mark & LAST_FRAGMENT != 0));
        Ok(())
    }

    fn reset(&mut self) {
        self.fragment = None;
        self.fragments = 0;
    }
}

/// The header of a record that consists of one fragment of `bytes` bytes.
pub fn mark(bytes: usize) -> [u8; MARK_BYTES] {
    // Sent records are far below 2 GiB: see `MAX_RECORD_BYTES`.
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    (bytes | LAST_FRAGMENT).to_be_bytes()
}
