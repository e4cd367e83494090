//! Frames between the server and a validator process.
//!
//! A request is a tag (1 byte), a schema id (8), a length (4), and the data. A reply is a tag (1),
//! a line number or 0 (8), a length (2), and the text. Numbers are big-endian. The process replies
//! to a check with `Accepted`, with `Refused` and then `Reason`, or with `WantsSchema`; the server
//! then sends that schema.

use std::io::{self, ErrorKind, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::validation::limits::{MAX_DRAFT_BYTES, MAX_REASON_BYTES, MAX_SCHEMA_BYTES};
use crate::validation::lines::Form;
use crate::validation::violation::Violation;

const CHECK_DOCUMENT: u8 = 1;
const CHECK_LINES: u8 = 2;
const SCHEMA: u8 = 3;

const ACCEPTED: u8 = 1;
const WANTS_SCHEMA: u8 = 2;
const REFUSED: u8 = 3;
const REASON: u8 = 4;

const REQUEST_BYTES: usize = 13;
const REPLY_BYTES: usize = 11;

/// A request of the server.
#[derive(Debug)]
pub(super) enum ValidatorRequest {
    /// Check content against the schema with this id.
    Check(u64, Form, Vec<u8>),
    /// The text of the schema that the process wants.
    Schema(Vec<u8>),
}

/// A reply of a validator process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValidatorReply {
    Accepted,
    WantsSchema,
    /// The content is rejected, in this line if known. `Reason` follows.
    Refused(Option<u64>),
    /// The reason of the rejection.
    Reason(Violation),
}

/// Sends content to check.
pub(super) async fn send_check(
    to: &mut (impl AsyncWrite + Unpin),
    schema: u64,
    form: Form,
    content: &[u8],
) -> io::Result<()> {
    let tag = match form {
        Form::Document => CHECK_DOCUMENT,
        Form::Lines => CHECK_LINES,
    };
    send(to, tag, schema, content).await
}

/// Sends a schema.
pub(super) async fn send_schema(
    to: &mut (impl AsyncWrite + Unpin),
    id: u64,
    text: &[u8],
) -> io::Result<()> {
    send(to, SCHEMA, id, text).await
}

async fn send(to: &mut (impl AsyncWrite + Unpin), tag: u8, id: u64, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(|_| odd("a frame is too long"))?;
    let mut head = Vec::with_capacity(REQUEST_BYTES);
    head.push(tag);
    head.extend_from_slice(&id.to_be_bytes());
    head.extend_from_slice(&length.to_be_bytes());
    to.write_all(&head).await?;
    to.write_all(data).await?;
    to.flush().await
}

/// Reads a request; `None` if the server has closed its end.
pub(super) fn read_request(from: &mut impl Read) -> io::Result<Option<ValidatorRequest>> {
    let mut head = [0; REQUEST_BYTES];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [tag, rest @ ..] = head;
    let (id, length) = (number(&rest[..8]), number(&rest[8..]));
    let most = if tag == SCHEMA { MAX_SCHEMA_BYTES } else { MAX_DRAFT_BYTES };
    if length > most {
        return Err(odd("a request is too long"));
    }
    let mut data = vec![0; length as usize];
    from.read_exact(&mut data)?;
    Ok(Some(match tag {
        CHECK_DOCUMENT => ValidatorRequest::Check(id, Form::Document, data),
        CHECK_LINES => ValidatorRequest::Check(id, Form::Lines, data),
        SCHEMA => ValidatorRequest::Schema(data),
        _ => return Err(odd("a request is of no known kind")),
    }))
}

/// Writes a reply.
pub(super) fn write_reply(to: &mut impl Write, reply: &ValidatorReply) -> io::Result<()> {
    let (tag, line, reason) = match reply {
        ValidatorReply::Accepted => (ACCEPTED, None, ""),
        ValidatorReply::WantsSchema => (WANTS_SCHEMA, None, ""),
        ValidatorReply::Refused(line) => (REFUSED, *line, ""),
        ValidatorReply::Reason(Violation { line, reason }) => (REASON, *line, reason.as_str()),
    };
    let length = u16::try_from(reason.len()).map_err(|_| odd("a reason is too long"))?;
    let mut frame = vec![tag];
    frame.extend_from_slice(&line.unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(reason.as_bytes());
    to.write_all(&frame)?;
    to.flush()
}

/// Reads a reply.
pub(super) async fn read_reply(from: &mut (impl AsyncRead + Unpin)) -> io::Result<ValidatorReply> {
    let mut head = [0; REPLY_BYTES];
    from.read_exact(&mut head).await?;
    let [tag, rest @ ..] = head;
    let (line, length) = (number(&rest[..8]), number(&rest[8..]) as usize);
    if length > MAX_REASON_BYTES {
        return Err(odd("a reason is too long"));
    }
    let mut reason = vec![0; length];
    from.read_exact(&mut reason).await?;
    let line = (line > 0).then_some(line);
    Ok(match tag {
        ACCEPTED => ValidatorReply::Accepted,
        WANTS_SCHEMA => ValidatorReply::WantsSchema,
        REFUSED => ValidatorReply::Refused(line),
        REASON => {
            let reason = String::from_utf8(reason).map_err(|_| odd("a reason is no text"))?;
            ValidatorReply::Reason(Violation { line, reason })
        }
        _ => return Err(odd("a reply is of no known kind")),
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn odd(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_is_what_arrives() {
        let mut sent = Vec::new();
        send_check(&mut sent, 7, Form::Lines, b"{}\n").await.unwrap();
        send_schema(&mut sent, 7, b"true").await.unwrap();
        let mut from = sent.as_slice();
        let first = read_request(&mut from).unwrap().unwrap();
        assert!(matches!(first, ValidatorRequest::Check(7, Form::Lines, data) if data == b"{}\n"));
        let second = read_request(&mut from).unwrap().unwrap();
        assert!(matches!(second, ValidatorRequest::Schema(data) if data == b"true"));
        assert!(read_request(&mut from).unwrap().is_none());
        for reply in [
            ValidatorReply::Accepted,
            ValidatorReply::WantsSchema,
            ValidatorReply::Refused(Some(3)),
            ValidatorReply::Reason(Violation { line: None, reason: "ä".to_owned() }),
        ] {
            let mut sent = Vec::new();
            write_reply(&mut sent, &reply).unwrap();
            assert_eq!(read_reply(&mut sent.as_slice()).await.unwrap(), reply);
        }
    }

    #[tokio::test]
    async fn lengths_are_checked_before_anything_is_allocated() {
        let mut request = vec![CHECK_LINES; 9];
        request.extend_from_slice(&u32::MAX.to_be_bytes());
        assert!(read_request(&mut request.as_slice()).is_err());
        let mut reply = vec![REASON; 9];
        reply.extend_from_slice(&u16::MAX.to_be_bytes());
        assert!(read_reply(&mut reply.as_slice()).await.is_err());
    }
}
