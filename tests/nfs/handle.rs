//! File handles.

use acetate::nfs::{HandleCodec, Handles};
use acetate::vfs::{FileId, FsError, Locator, PathDigest};
use acetate::wire::nfs3::FileHandle;
use proptest::prelude::*;

use super::golden::cases;
use super::{Server, codec, wire};
use crate::support::hex::{hex, to_hex};
use crate::support::scripted_vfs::{ScriptedVfs, found};

fn locator() -> impl Strategy<Value = Locator> {
    let trail =
        (0u16..100, any::<[u8; PathDigest::MAX_BYTES]>()).prop_map(|(components, bytes)| {
            let mut trail = PathDigest { components, digest: [0; PathDigest::MAX_BYTES] };
            let used = usize::from(components).min(PathDigest::MAX_BYTES);
            trail.digest[..used].copy_from_slice(&bytes[..used]);
            trail
        });
    let id = (0..FileId::LIMIT).prop_map(FileId);
    prop_oneof![
        id.clone().prop_map(Locator::Delta),
        (id.clone(), trail).prop_map(|(id, trail)| Locator::Base(id, trail)),
        id.prop_map(Locator::BaseLinked),
    ]
}

/// The codes are of SipHash-2-4 with the key 00 01 … 0f, by an independent implementation.
#[test]
fn layout() {
    let codec = HandleCodec::new(std::array::from_fn(|index| index as u8), 0x0102);
    let root = codec.encode(&Locator::ROOT);
    assert_eq!(to_hex(&root.0), to_hex(&hex("01 00 0102 00000000 00000001 e7f00383 9a3ed297")));
    let base = codec.encode(&found());
    assert_eq!(
        to_hex(&base.0),
        to_hex(&hex("01 01 0102 00000000 00000088 0002 abcd 5379e1ba 3b51063d"))
    );
}

#[tokio::test]
async fn bad_handles_are_refused_without_attributes() {
    let server = Server::new(ScriptedVfs::default());
    let good = codec().encode(&super::FILE).0;
    for case in cases() {
        // The first handle of the arguments is always at the front.
        let mut args = wire(case.args);
        assert_eq!(args[..4], (good.len() as u32).to_be_bytes());
        args[4 + 7] ^= 1;
        let reply = server.call(case.procedure, args).await.unwrap();
        let empty = match case.procedure {
            1 => "",
            3..=6 | 16..=20 => "00000000",
            14 => "00000000 00000000 00000000 00000000",
            15 => "00000000 00000000 00000000",
            _ => "00000000 00000000",
        };
        let expected = wire(&format!("00002711 {empty}"));
        assert_eq!(to_hex(&reply), to_hex(&expected), "{}", case.call);
    }
    assert_eq!(server.vfs.take_calls(), [""; 0]);
}

#[tokio::test]
async fn the_second_handle_is_checked_too() {
    let server = Server::new(ScriptedVfs::default());
    let rename = "DIR 00000001 61000000 00000004 01020304 00000001 62000000";
    assert_eq!(server.ask(14, rename).await[..4], 10001u32.to_be_bytes());
    let link = "FILE 00000004 01020304 00000001 62000000";
    assert_eq!(server.ask(15, link).await[..4], 10001u32.to_be_bytes());
    assert_eq!(server.vfs.take_calls(), [""; 0]);
}

proptest! {
    #[test]
    fn handles_round_trip(locator in locator(), key: [u8; 16], export: u16) {
        let codec = HandleCodec::new(key, export);
        let handle = codec.encode(&locator);
        prop_assert!(handle.0.len() <= 64);
        prop_assert_eq!(&codec.encode(&locator), &handle);
        prop_assert_eq!(codec.decode(&handle), Ok(locator));
    }

    #[test]
    fn any_changed_bit_is_noticed(locator in locator()) {
        let handle = codec().encode(&locator).0;
        for bit in 0..handle.len() * 8 {
            let mut forged = handle.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = FileHandle(forged.into());
            prop_assert_eq!(codec().decode(&forged), Err(FsError::BadHandle));
        }
    }

    #[test]
    fn any_other_length_is_noticed(locator in locator(), extra in 1usize..8) {
        let handle = codec().encode(&locator).0;
        for length in 0..handle.len() {
            let cut = FileHandle(handle.slice(..length));
            prop_assert_eq!(codec().decode(&cut), Err(FsError::BadHandle));
        }
        let longer = FileHandle([&handle[..], &vec![0; extra]].concat().into());
        prop_assert_eq!(codec().decode(&longer), Err(FsError::BadHandle));
    }

    #[test]
    fn handles_of_another_export_or_key_are_foreign(locator in locator()) {
        let handle = codec().encode(&locator);
        let other_export = HandleCodec::new(*b"0123456789abcdef", 8);
        prop_assert_eq!(other_export.decode(&handle), Err(FsError::BadHandle));
        let other_key = HandleCodec::new(*b"0123456789abcdeg", 7);
        prop_assert_eq!(other_key.decode(&handle), Err(FsError::BadHandle));
    }
}

#[test]
fn the_key_is_not_shown() {
    assert_eq!(format!("{:?}", codec()), "HandleCodec { export: 7, .. }");
}
