//! Record marking without a socket.

use acetate::wire::record::{MAX_FRAGMENTS, RecordError, RecordReader};
use bytes::{Bytes, BytesMut};

use super::peer::{fragment_mark, one_fragment};

const RECORD: &[u8] = b"twelve bytes";

/// Feeds `stream` in pieces that end at `cuts`, and collects the records.
fn records(stream: &[u8], cuts: &[usize]) -> Result<Vec<Bytes>, RecordError> {
    let mut reader = RecordReader::new(64);
    let mut input = BytesMut::new();
    let mut found = Vec::new();
    let mut begin = 0;
    for &end in cuts.iter().chain([&stream.len()]) {
        input.extend_from_slice(&stream[begin..end]);
        begin = end;
        while let Some(record) = reader.next_record(&mut input)? {
            found.push(record);
        }
    }
    assert!(!reader.is_mid_record(&input), "something is left over");
    Ok(found)
}

fn fragments(pieces: &[&[u8]]) -> Vec<u8> {
    let last = pieces.len() - 1;
    let piece =
        |(i, piece): (usize, &&[u8])| [&fragment_mark(piece.len(), i == last)[..], piece].concat();
    pieces.iter().enumerate().flat_map(piece).collect()
}

#[test]
fn a_record_survives_every_split_into_two_fragments_and_two_arrivals() {
    for middle in 0..=RECORD.len() {
        let stream = fragments(&[&RECORD[..middle], &RECORD[middle..]]);
        for cut in 0..=stream.len() {
            assert_eq!(records(&stream, &[cut]).unwrap(), [RECORD], "{middle} {cut}");
        }
    }
}

#[test]
fn a_record_survives_fragments_of_one_byte_that_arrive_byte_by_byte() {
    let pieces: Vec<&[u8]> = RECORD.chunks(1).collect();
    let stream = fragments(&pieces);
    let cuts: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(records(&stream, &cuts).unwrap(), [RECORD]);
}

#[test]
fn many_records_may_arrive_at_once() {
    let stream = [one_fragment(b"a"), fragments(&[b"b", b"", b"c"]), one_fragment(b"")].concat();
    let expected: [&[u8]; 3] = [b"a", b"bc", b""];
    assert_eq!(records(&stream, &[]).unwrap(), expected);
}

#[test]
fn a_record_of_one_fragment_is_not_copied() {
    let mut input = BytesMut::from(&one_fragment(RECORD)[..]);
    let at = input[4..].as_ptr();
    let record = RecordReader::new(64).next_record(&mut input).unwrap().unwrap();
    assert_eq!(record.as_ptr(), at);
}

#[test]
fn what_a_header_claims_is_checked_before_the_data_is_there() {
    let mut reader = RecordReader::new(64);
    let mut input = BytesMut::from(&fragment_mark(64, true)[..]);
    assert_eq!(reader.next_record(&mut input), Ok(None));
    assert_eq!(reader.reserved_bytes(), Some(64));
    assert_eq!(reader.missing_bytes(&input), 64);

    let too_long = Err(RecordError::TooLong { claimed_bytes: 65, limit_bytes: 64 });
    let mut input = BytesMut::from(&fragment_mark(65, true)[..]);
    assert_eq!(RecordReader::new(64).next_record(&mut input), too_long);

    let stream = [&fragments(&[b"x", b""])[..5], &fragment_mark(64, true)].concat();
    let mut input = BytesMut::from(&stream[..]);
    assert_eq!(RecordReader::new(64).next_record(&mut input), too_long);
}

#[test]
fn a_record_in_fragments_reserves_the_limit() {
    let mut reader = RecordReader::new(64);
    assert_eq!(reader.reserved_bytes(), None);
    let mut input = BytesMut::from(&fragments(&[b"x", b"yz"])[..5]);
    assert_eq!(reader.next_record(&mut input), Ok(None));
    assert_eq!(reader.reserved_bytes(), Some(64));
}

#[test]
fn a_flood_of_empty_fragments_ends() {
    let mut reader = RecordReader::new(64);
    let mut input = BytesMut::new();
    for _ in 0..MAX_FRAGMENTS {
        input.extend_from_slice(&fragment_mark(0, false));
    }
    assert_eq!(reader.next_record(&mut input), Ok(None));
    input.extend_from_slice(&fragment_mark(0, false));
    assert_eq!(reader.next_record(&mut input), Err(RecordError::TooManyFragments));
}
