//! Record marking: the same records come out however the stream is cut, and nothing is gathered
//! beyond what was reserved.

use acetate::wire::record::{MARK_BYTES, MAX_FRAGMENTS, RecordError, RecordReader, mark};
use bytes::{Bytes, BytesMut};

use crate::choices::Choices;

/// Small, so that the fuzzer reaches it.
const LIMIT_BYTES: usize = 512;

/// The first bytes say how the rest is cut into pieces.
pub fn check(data: &[u8]) {
    let (cuts, stream) = data.split_at(data.len().min(8));
    let whole = read(stream, std::iter::once(stream.len()));
    let mut choices = Choices::new(cuts);
    let pieces = std::iter::repeat_with(|| choices.below(32) + 1);
    let piecewise = read(stream, pieces);
    assert_eq!(whole, piecewise);

    // What came out goes in again.
    let (records, _) = whole;
    let mut again = Vec::new();
    for record in &records {
        assert!(record.len() <= LIMIT_BYTES);
        again.extend_from_slice(&mark(record.len()));
        again.extend_from_slice(record);
    }
    assert_eq!(read(&again, std::iter::once(again.len())), (records, None));
}

/// The records in `stream`, and why it cannot be read further.
fn read(stream: &[u8], pieces: impl Iterator<Item = usize>) -> (Vec<Bytes>, Option<RecordError>) {
    let mut reader = RecordReader::new(LIMIT_BYTES);
    let (mut input, mut rest, mut records) = (BytesMut::new(), stream, Vec::new());
    for piece in pieces {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        input.extend_from_slice(now);
        rest = later;
        loop {
            match reader.next_record(&mut input) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        let missing = reader.missing_bytes(&input);
        assert!(0 < missing && missing <= LIMIT_BYTES.max(MARK_BYTES));
        assert!(reader.reserved_bytes().is_none_or(|bytes| bytes <= LIMIT_BYTES));
        if rest.is_empty() {
            break;
        }
    }
    assert!(records.len() <= stream.len() / MARK_BYTES && MAX_FRAGMENTS > 0);
    (records, None)
}
