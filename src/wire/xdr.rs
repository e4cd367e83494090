//! External data representation (RFC 4506), as far as ONC RPC, MOUNT, NLM and NFSv3 need it.
//!
//! [`Decoder`] returns slices of one [`Bytes`], so the data of a WRITE is not copied. [`Encoder`]
//! keeps large opaques as segments, so the data of a READ is not copied.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The size of every XDR item is a multiple of this many bytes (RFC 4506 §3).
pub const UNIT_BYTES: usize = 4;

/// Opaques of at least this many bytes become segments; for smaller ones a copy is cheaper.
pub const SHARED_MIN_BYTES: usize = 1024;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The input ends inside an item.
    #[error("input ends too early")]
    Truncated,
    /// A counted item is larger than the protocol allows.
    #[error("item longer than {limit} bytes or elements")]
    TooLong {
        /// The limit, in bytes (opaques) or elements (arrays).
        limit: usize,
    },
    /// A boolean, enumeration or discriminant has an undefined value.
    #[error("value without meaning")]
    BadValue,
    /// Bytes remain after the last item.
    #[error("bytes left over")]
    Trailing,
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, XdrError>;

/// A type that can be decoded from XDR.
pub trait Decode: Sized {
    /// Decodes one value and advances `from` past it.
    fn decode(from: &mut Decoder) -> Result<Self>;

    /// Decodes a value that fills `bytes` exactly; otherwise fails with [`XdrError::Trailing`].
    fn decode_all(bytes: Bytes) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let value = Self::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(value)
    }
}

/// A type that can be encoded as XDR.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, to: &mut Encoder);
}

impl Decode for u32 {
    fn decode(from: &mut Decoder) -> Result<Self> {
        from.u32()
    }
}

impl Decode for u64 {
    fn decode(from: &mut Decoder) -> Result<Self> {
        from.u64()
    }
}

/// Nothing (`void`, RFC 4506 §4.16).
impl Decode for () {
    fn decode(_: &mut Decoder) -> Result<Self> {
        Ok(())
    }
}

/// Nothing (`void`, RFC 4506 §4.16).
impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

/// Optional data (RFC 4506 §4.19): a boolean, and a value if it is true.
impl<T: Decode> Decode for Option<T> {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(if from.bool()? { Some(T::decode(from)?) } else { None })
    }
}

/// Optional data (RFC 4506 §4.19): a boolean, and a value if it is true.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut Encoder) {
        to.put_bool(self.is_some());
        if let Some(value) = self {
            value.encode(to);
        }
    }
}

/// Decodes XDR items from the front of a buffer.
#[derive(Debug, Clone)]
pub struct Decoder {
    rest: Bytes,
}

impl Decoder {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// Decodes an unsigned integer (RFC 4506 §4.2).
    pub fn u32(&mut self) -> Result<u32> {
        self.need(4)?;
        Ok(self.rest.get_u32())
    }

    /// Decodes an integer (RFC 4506 §4.1).
    pub fn i32(&mut self) -> Result<i32> {
        self.need(4)?;
        Ok(self.rest.get_i32())
    }

    /// Decodes an unsigned hyper integer (RFC 4506 §4.5).
    pub fn u64(&mut self) -> Result<u64> {
        self.need(8)?;
        Ok(self.rest.get_u64())
    }

    /// Decodes a boolean (RFC 4506 §4.4); values other than 0 and 1 are [`XdrError::BadValue`].
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::BadValue),
        }
    }

    /// Decodes a fixed-length opaque of `N` bytes and its padding (RFC 4506 §4.9).
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.need(N + padding(N))?;
        let mut bytes = [0; N];
        self.rest.copy_to_slice(&mut bytes);
        self.rest.advance(padding(N));
        Ok(bytes)
    }

    /// Decodes a variable-length opaque or string of at most `max_bytes` bytes and its padding (RFC
    /// 4506 §4.10), as a slice of the input.
    ///
    /// First checks the claimed length against `max_bytes` and the remaining input. Does not check
    /// the value of padding bytes.
    pub fn opaque(&mut self, max_bytes: usize) -> Result<Bytes> {
        let claimed = self.u32()? as usize;
        if claimed > max_bytes {
            return Err(XdrError::TooLong { limit: max_bytes });
        }
        // Two steps, because claimed + padding can overflow a 32-bit usize.
        self.need(claimed)?;
        if self.rest.len() - claimed < padding(claimed) {
            return Err(XdrError::Truncated);
        }
        let bytes = self.rest.split_to(claimed);
        self.rest.advance(padding(claimed));
        Ok(bytes)
    }

    /// The number of remaining bytes.
    #[cfg(feature = "internals")]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The remaining bytes.
    pub fn rest(self) -> Bytes {
        self.rest
    }

    /// Checks that no bytes remain: [`XdrError::Trailing`] otherwise.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::Trailing) }
    }

    fn need(&self, bytes: usize) -> Result<()> {
        if self.rest.len() < bytes { Err(XdrError::Truncated) } else { Ok(()) }
    }
}

/// Initial capacity of an encoder, in bytes; most replies fit.
const FIRST_BYTES: usize = 256;

/// Encodes XDR items one after another.
#[derive(Debug)]
pub struct Encoder {
    /// Complete segments.
    segments: Vec<Bytes>,
    /// Bytes in `segments`.
    segment_bytes: usize,
    /// The segment that items are appended to.
    tail: BytesMut,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An empty encoder.
    pub fn new() -> Self {
        let tail = BytesMut::with_capacity(FIRST_BYTES);
        Self { segments: Vec::new(), segment_bytes: 0, tail }
    }

    /// Appends an unsigned integer.
    pub fn put_u32(&mut self, value: u32) {
        self.tail.put_u32(value);
    }

    /// Appends an integer.
    pub fn put_i32(&mut self, value: i32) {
        self.tail.put_i32(value);
    }

    /// Appends an unsigned hyper integer.
    pub fn put_u64(&mut self, value: u64) {
        self.tail.put_u64(value);
    }

    /// Appends a boolean.
    pub fn put_bool(&mut self, value: bool) {
        self.tail.put_u32(u32::from(value));
    }

    /// Appends a fixed-length opaque and its padding, without a length.
    pub fn put_fixed(&mut self, bytes: &[u8]) {
        self.tail.put_slice(bytes);
        self.tail.put_bytes(0, padding(bytes.len()));
    }

    /// Appends a variable-length opaque or string: length, a copy of the bytes, padding.
    pub fn put_opaque(&mut self, bytes: &[u8]) {
        self.put_length(bytes.len());
        self.put_fixed(bytes);
    }

    /// Appends a variable-length opaque like [`Encoder::put_opaque`]. From [`SHARED_MIN_BYTES`] on,
    /// `bytes` becomes a segment without a copy.
    pub fn put_shared(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED_MIN_BYTES {
            return self.put_opaque(&bytes);
        }
        self.put_length(bytes.len());
        let pad = padding(bytes.len());
        self.close_tail();
        self.push_segment(bytes);
        self.tail.put_bytes(0, pad);
    }

    /// Appends the content of `other`, without copying its segments.
    pub fn append(&mut self, other: Self) {
        if other.segments.is_empty() {
            self.tail.extend_from_slice(&other.tail);
            return;
        }
        self.close_tail();
        self.segment_bytes += other.segment_bytes;
        self.segments.extend(other.segments);
        self.tail = other.tail;
    }

    /// Appends a copy of this content to `to`.
    pub fn copy_to(&self, to: &mut Self) {
        self.segments.iter().for_each(|segment| to.tail.extend_from_slice(segment));
        to.tail.extend_from_slice(&self.tail);
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.segment_bytes + self.tail.len()
    }

    /// Whether no bytes were encoded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in order, in as few segments as possible, for one vectored write.
    pub fn into_segments(mut self) -> Vec<Bytes> {
        self.close_tail();
        self.segments
    }

    /// The bytes as one buffer; copies if there are several segments.
    pub fn into_bytes(self) -> Bytes {
        let mut segments = self.into_segments();
        if segments.len() == 1 { segments.remove(0) } else { segments.concat().into() }
    }

    fn put_length(&mut self, bytes: usize) {
        // All encoded data fits into a record, which is far below 4 GiB.
        self.tail.put_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.push_segment(tail);
        }
    }

    fn push_segment(&mut self, segment: Bytes) {
        self.segment_bytes += segment.len();
        self.segments.push(segment);
    }
}

/// The encoded size of a variable-length opaque of `bytes` bytes: length, content and padding.
pub const fn opaque_len(bytes: usize) -> usize {
    UNIT_BYTES + bytes + padding(bytes)
}

/// The number of padding bytes after `bytes` bytes of opaque content.
const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % UNIT_BYTES
}
