//! The items of RFC 4506.

use acetate::wire::xdr::{
    Decode, Decoder, Encode, Encoder, SHARED_MIN_BYTES, XdrError, opaque_len,
};
use bytes::Bytes;
use proptest::prelude::*;

use crate::support::hex::hex;

fn decoder(text: &str) -> Decoder {
    Decoder::new(hex(text).into())
}

#[test]
fn numbers() {
    let mut d = decoder("80000001 fffffffe 01020304 05060708");
    assert_eq!(d.u32(), Ok(0x8000_0001));
    assert_eq!(d.i32(), Ok(-2));
    assert_eq!(d.remaining(), 8);
    assert_eq!(d.u64(), Ok(0x0102_0304_0506_0708));
    assert_eq!(d.u32(), Err(XdrError::Truncated));
    assert_eq!(d.finish(), Ok(()));
    assert_eq!(decoder("010203").u32(), Err(XdrError::Truncated));
    assert_eq!(decoder("01020304 050607").u64(), Err(XdrError::Truncated));
}

#[test]
fn booleans_are_zero_or_one() {
    let mut d = decoder("00000000 00000001 00000002 ffffffff");
    assert_eq!(d.bool(), Ok(false));
    assert_eq!(d.bool(), Ok(true));
    assert_eq!(d.bool(), Err(XdrError::BadValue));
    assert_eq!(d.bool(), Err(XdrError::BadValue));
}

#[test]
fn opaques_take_their_padding() {
    let mut d = decoder("00000005 68656c6c 6f000000 00000000 00000007");
    assert_eq!(d.opaque(5).unwrap(), "hello");
    assert_eq!(d.opaque(0).unwrap(), "");
    assert_eq!(d.u32(), Ok(7));
}

#[test]
fn opaque_lengths_are_checked_first() {
    assert_eq!(
        decoder("00000006 68656c6c 6f6f0000").opaque(5),
        Err(XdrError::TooLong { limit: 5 })
    );
    assert_eq!(decoder("ffffffff").opaque(usize::MAX), Err(XdrError::Truncated));
    assert_eq!(decoder("ffffffff 00000000").opaque(64), Err(XdrError::TooLong { limit: 64 }));
    assert_eq!(decoder("00000005 68656c6c 6f0000").opaque(9), Err(XdrError::Truncated));
    assert_eq!(decoder("00000005 68656c6c").opaque(9), Err(XdrError::Truncated));
}

#[test]
fn opaques_are_slices_of_the_input() {
    let input = Bytes::from(hex("00000004 61626364"));
    let opaque = Decoder::new(input.clone()).opaque(4).unwrap();
    assert_eq!(opaque.as_ptr(), input[4..].as_ptr());
}

#[test]
fn fixed_opaques_take_their_padding() {
    let mut d = decoder("61626364 65000000 01020304");
    assert_eq!(d.fixed::<5>(), Ok(*b"abcde"));
    assert_eq!(d.clone().fixed::<5>(), Err(XdrError::Truncated));
    assert_eq!(d.fixed::<4>(), Ok([1, 2, 3, 4]));
    assert_eq!(decoder("61626364 6500").fixed::<5>(), Err(XdrError::Truncated));
}

#[test]
fn optional_data() {
    assert_eq!(Option::<u32>::decode(&mut decoder("00000001 00000009")), Ok(Some(9)));
    assert_eq!(Option::<u32>::decode(&mut decoder("00000000")), Ok(None));
    assert_eq!(Option::<u32>::decode(&mut decoder("00000002")), Err(XdrError::BadValue));
    assert_eq!(Option::<u64>::decode(&mut decoder("00000001 0000")), Err(XdrError::Truncated));
}

#[test]
fn left_over_bytes_are_an_error() {
    assert_eq!(u32::decode_all(hex("00000001").into()), Ok(1));
    assert_eq!(u32::decode_all(hex("00000001 00").into()), Err(XdrError::Trailing));
    assert_eq!(<()>::decode_all(Bytes::new()), Ok(()));
    let mut d = decoder("00000001 0203");
    d.u32().unwrap();
    assert_eq!(d.rest(), hex("0203"));
}

#[test]
fn encoding() {
    let mut e = Encoder::new();
    assert!(e.is_empty());
    e.put_u32(1);
    e.put_i32(-2);
    e.put_u64(3);
    e.put_bool(true);
    e.put_opaque(b"hello");
    e.put_fixed(b"abcdef");
    Some(FATHER).encode(&mut e);
    None::<Word>.encode(&mut e);
    let expected = hex("00000001 fffffffe 00000000 00000003 00000001
         00000005 68656c6c 6f000000 61626364 65660000 00000001 00000007 00000000");
    assert_eq!(e.len(), expected.len());
    assert_eq!(e.into_bytes(), expected);
    assert_eq!(Encoder::new().into_bytes(), "");
}

/// A type with an encoding of its own.
struct Word(u32);
const FATHER: Word = Word(7);

impl Encode for Word {
    fn encode(&self, to: &mut Encoder) {
        to.put_u32(self.0);
    }
}

#[test]
fn large_opaques_stay_where_they_are() {
    let data = Bytes::from(vec![9; SHARED_MIN_BYTES + 1]);
    let mut e = Encoder::new();
    e.put_u32(5);
    e.put_shared(data.clone());
    e.put_u32(6);
    assert_eq!(e.len(), 4 + opaque_len(data.len()) + 4);
    let segments = e.into_segments();
    assert_eq!(segments.len(), 3);
    assert_eq!(segments[0], hex("00000005 00000401"));
    assert_eq!(segments[1].as_ptr(), data.as_ptr());
    assert_eq!(segments[2], hex("000000 00000006"));
}

proptest! {
    #[test]
    fn shared_and_copied_opaques_are_the_same(
        lengths in prop::collection::vec(0usize..3000, 0..5), appended: bool,
    ) {
        let (mut shared, mut copied) = (Encoder::new(), Encoder::new());
        for (index, length) in lengths.iter().enumerate() {
            let data = Bytes::from(vec![index as u8; *length]);
            copied.put_opaque(&data);
            if appended {
                let mut part = Encoder::new();
                part.put_shared(data);
                shared.append(part);
            } else {
                shared.put_shared(data);
            }
        }
        prop_assert_eq!(shared.len(), copied.len());
        let expected: usize = lengths.iter().map(|&length| opaque_len(length)).sum();
        prop_assert_eq!(shared.len(), expected);
        let bytes = shared.into_bytes();
        prop_assert_eq!(&bytes, &copied.into_bytes());
        let mut decoder = Decoder::new(bytes);
        for (index, length) in lengths.iter().enumerate() {
            prop_assert_eq!(decoder.opaque(3000).unwrap(), vec![index as u8; *length]);
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes: Vec<u8>, limit in 0usize..64) {
        let mut decoder = Decoder::new(bytes.into());
        while let Ok(opaque) = decoder.opaque(limit) {
            prop_assert!(opaque.len() <= limit);
        }
    }
}
