//! File handles: a [`Locator`] in at most 64 bytes, authenticated so that clients cannot forge one.
//!
//! | Bytes | Content |
//! |---|---|
//! | 1 | version of this layout |
//! | 1 | layer: delta, base, base with several names |
//! | 2 | export |
//! | 8 | fileid |
//! | 2 | components of the base path (layer base only) |
//! | 0–40 | digest of the base path (layer base only) |
//! | 8 | SipHash-2-4 of all the above, keyed with the session's secret |
//!
//! Numbers are big-endian. A handle is a pure function of locator, export and key, so it stays
//! valid across copy-up, rename and restart.

use std::fmt;
use std::hash::Hasher;

use bytes::{BufMut, BytesMut};
use siphasher::sip::SipHasher24;

use crate::vfs::{FileId, FsError, Locator, PathDigest};
use crate::wire::nfs3::{FHSIZE, FileHandle};

const VERSION: u8 = 1;

/// Tag of [`Locator::Delta`].
const LAYER_DELTA: u8 = 0;
/// Tag of [`Locator::Base`].
const LAYER_BASE: u8 = 1;
/// Tag of [`Locator::BaseLinked`].
const LAYER_BASE_LINKED: u8 = 2;

/// Version, layer, export and fileid, in bytes.
const HEAD_BYTES: usize = 1 + 1 + 2 + 8;
/// The message authentication code at the end, in bytes.
const MAC_BYTES: usize = 8;

const _: () = assert!(HEAD_BYTES + 2 + PathDigest::MAX_BYTES + MAC_BYTES <= FHSIZE);

/// Encodes objects of a filesystem as handles, and decodes them.
pub trait Handles<O>: Clone + Send + Sync + 'static {
    /// The handle of an object. Its bytes are split off `memory`, which many handles can share.
    /// Equal objects have byte-identical handles.
    fn encode_in(&self, memory: &mut BytesMut, object: &O) -> FileHandle;

    /// The object of a handle; [`FsError::BadHandle`] if this codec did not issue it.
    fn decode(&self, handle: &FileHandle) -> Result<O, FsError>;

    /// The handle of an object.
    fn encode(&self, object: &O) -> FileHandle {
        self.encode_in(&mut BytesMut::with_capacity(FHSIZE), object)
    }
}

/// Encodes locators as handles, and decodes them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HandleCodec {
    key: [u8; 16],
    export: u16,
}

impl HandleCodec {
    /// A codec for the export with this number, which authenticates handles with the session's
    /// `key`.
    pub fn new(key: [u8; 16], export: u16) -> Self {
        Self { key, export }
    }

    /// The export number in a handle, without authentication.
    pub fn export_of(handle: &FileHandle) -> Option<u16> {
        handle.0.get(2..4)?.first_chunk().map(|tag| u16::from_be_bytes(*tag))
    }

    fn parse(&self, handle: &[u8]) -> Option<Locator> {
        let (body, mac) = handle.split_last_chunk::<MAC_BYTES>()?;
        // An integer comparison takes constant time.
        if self.mac(body) != u64::from_be_bytes(*mac) {
            return None;
        }
        let (&[version, layer, export_high, export_low, ref fileid @ ..], trail) =
            body.split_first_chunk::<HEAD_BYTES>()?;
        if version != VERSION || u16::from_be_bytes([export_high, export_low]) != self.export {
            return None;
        }
        let fileid = FileId(u64::from_be_bytes(*fileid));
        match layer {
            LAYER_DELTA if trail.is_empty() => Some(Locator::Delta(fileid)),
            LAYER_BASE => Some(Locator::Base(fileid, parse_trail(trail)?)),
            LAYER_BASE_LINKED if trail.is_empty() => Some(Locator::BaseLinked(fileid)),
            _ => None,
        }
    }

    fn mac(&self, body: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(body);
        hasher.finish()
    }
}

impl Handles<Locator> for HandleCodec {
    fn encode_in(&self, memory: &mut BytesMut, locator: &Locator) -> FileHandle {
        // Listings encode a handle per entry, so it is built on the stack and copied once.
        let mut handle = [0; FHSIZE];
        let mut rest = &mut handle[..FHSIZE - MAC_BYTES];
        rest.put_u8(VERSION);
        rest.put_u8(match locator {
            Locator::Delta(_) => LAYER_DELTA,
            Locator::Base(..) => LAYER_BASE,
            Locator::BaseLinked(_) => LAYER_BASE_LINKED,
        });
        rest.put_u16(self.export);
        rest.put_u64(locator.fileid().0);
        if let Locator::Base(_, trail) = locator {
            rest.put_u16(trail.components);
            rest.put_slice(trail.bytes());
        }
        let length = FHSIZE - MAC_BYTES - rest.len();
        let (body, mac) = handle.split_at_mut(length);
        mac[..MAC_BYTES].copy_from_slice(&self.mac(body).to_be_bytes());
        memory.extend_from_slice(&handle[..length + MAC_BYTES]);
        FileHandle(memory.split().freeze())
    }

    fn decode(&self, handle: &FileHandle) -> Result<Locator, FsError> {
        self.parse(&handle.0).ok_or(FsError::BadHandle)
    }
}

impl fmt::Debug for HandleCodec {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleCodec").field("export", &self.export).finish_non_exhaustive()
    }
}

fn parse_trail(bytes: &[u8]) -> Option<PathDigest> {
    let (components, digest) = bytes.split_first_chunk::<2>()?;
    let components = u16::from_be_bytes(*components);
    if digest.len() != usize::from(components).min(PathDigest::MAX_BYTES) {
        return None;
    }
    let mut trail = PathDigest { components, digest: [0; PathDigest::MAX_BYTES] };
    trail.digest[..digest.len()].copy_from_slice(digest);
    Some(trail)
}
