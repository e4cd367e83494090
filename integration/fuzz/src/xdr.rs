//! XDR items: what is written is read again, and no input makes the decoder go wrong.

use acetate::wire::xdr::{Decoder, Encoder, opaque_len};
use bytes::Bytes;

use crate::choices::Choices;

/// Items in one run.
const MAX_ITEMS: usize = 64;
/// The largest opaque that may be read, in bytes.
const MAX_OPAQUE_BYTES: usize = 300;

/// The first bytes say what is read of the rest.
pub fn check(data: &[u8]) {
    let (kinds, rest) = data.split_at(data.len().min(8));
    decode(kinds, rest);
    encode(data);
}

/// Reads items of the kinds that `kinds` says, over and over, and writes what was read.
fn decode(kinds: &[u8], bytes: &[u8]) {
    let mut decoder = Decoder::new(Bytes::copy_from_slice(bytes));
    for kind in kinds.iter().cycle().take(MAX_ITEMS) {
        let at = bytes.len() - decoder.remaining();
        let mut again = Encoder::new();
        // Padding may be anything, and comes back as zeros.
        let mut padding = 0;
        let read = match kind % 6 {
            0 => decoder.u32().map(|value| again.put_u32(value)),
            1 => decoder.i32().map(|value| again.put_i32(value)),
            2 => decoder.u64().map(|value| again.put_u64(value)),
            3 => decoder.bool().map(|value| again.put_bool(value)),
            4 => decoder.fixed::<7>().map(|value| {
                padding = 1;
                again.put_fixed(&value);
            }),
            _ => decoder.opaque(MAX_OPAQUE_BYTES).map(|value| {
                assert!(value.len() <= MAX_OPAQUE_BYTES);
                padding = opaque_len(value.len()) - 4 - value.len();
                again.put_opaque(&value);
            }),
        };
        if read.is_err() {
            return;
        }
        let here = &bytes[at..bytes.len() - decoder.remaining()];
        let again = again.into_bytes();
        assert_eq!(again.len(), here.len());
        assert_eq!(again[..again.len() - padding], here[..here.len() - padding]);
    }
}

/// Writes items, large ones without a copy among them, and reads them.
fn encode(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (mut encoder, mut written) = (Encoder::new(), Vec::new());
    while !choices.is_empty() && written.len() < MAX_ITEMS {
        let length = usize::try_from(choices.number()).unwrap_or(0).min(5000);
        let opaque = Bytes::from(vec![choices.byte(); length]);
        match choices.below(3) {
            0 => encoder.put_opaque(&opaque),
            1 => encoder.put_shared(opaque.clone()),
            _ => {
                let mut other = Encoder::new();
                other.put_shared(opaque.clone());
                encoder.append(other);
            }
        }
        written.push(opaque);
    }
    let expected: usize = written.iter().map(|opaque| opaque_len(opaque.len())).sum();
    assert_eq!(encoder.len(), expected);
    let bytes = encoder.into_bytes();
    assert_eq!(bytes.len(), expected);
    let mut decoder = Decoder::new(bytes);
    for opaque in written {
        assert_eq!(decoder.opaque(5000), Ok(opaque));
    }
    assert_eq!(decoder.finish(), Ok(()));
}
