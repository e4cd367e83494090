//! The ids of requests: JSON-RPC allows any number, rmcp only integers and texts. Also finds the id
//! of a request that is too long to be kept, so that its refusal reaches its caller.

use rmcp::model::RequestId;
use serde_json::Value;

use super::limits::MAX_ID_BYTES;

/// The beginning of a text that stands for an id which rmcp does not know; its JSON follows.
const STANDS_FOR: &str = "acetate-id:";

/// Replaces an id that rmcp does not know by one that it does. Others stay, also invalid ones.
pub(super) fn encode(id: &mut Value) {
    let needs_text = match &id {
        Value::Number(number) => number.as_i64().is_none(),
        // It is told from the ids that are put here.
        Value::String(text) => text.starts_with(STANDS_FOR),
        _ => false,
    };
    if needs_text {
        *id = format!("{STANDS_FOR}{id}").into();
    }
}

/// Whether an id is one by [`encode`].
pub(super) fn is_encoded(id: &RequestId) -> bool {
    matches!(id, RequestId::String(text) if text.starts_with(STANDS_FOR))
}

/// Puts the id of the client in place of one by [`encode`].
pub(super) fn decode(id: &mut Value) {
    let json = id.as_str().and_then(|text| text.strip_prefix(STANDS_FOR));
    if let Some(client) = json.and_then(|json| serde_json::from_str(json).ok()) {
        *id = client;
    }
}

/// Reads a JSON text byte by byte, and keeps the value of the key `id` of its outermost object.
#[derive(Debug, Default)]
pub(super) struct MessageIdFinder {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// The string, number or word of the outermost object that is being read.
    token: Vec<u8>,
    /// Whether the key before the value is `id`.
    is_id: bool,
    id: Option<Vec<u8>>,
}

impl MessageIdFinder {
    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.read_byte(*byte));
    }

    fn read_byte(&mut self, byte: u8) {
        if self.is_in_string {
            self.keep(byte);
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.keep(byte);
                self.is_in_string = true;
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.token.clear();
            }
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_value(),
            b':' if self.depth == 1 => {
                self.is_id = self.token == b"\"id\"";
                self.token.clear();
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        // One byte more than is valid shows that it is too long.
        if self.depth == 1 && self.token.len() <= MAX_ID_BYTES {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        let token = std::mem::take(&mut self.token);
        if std::mem::take(&mut self.is_id) && token.len() <= MAX_ID_BYTES {
            self.id = Some(token);
        }
    }

    /// The id, if the text has a valid one.
    pub(super) fn found(&self) -> Option<RequestId> {
        let mut id = serde_json::from_slice(self.id.as_deref()?).ok()?;
        encode(&mut id);
        serde_json::from_value(id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<String> {
        let mut finder = MessageIdFinder::default();
        finder.read(text.as_bytes());
        finder.found().map(|id| {
            let mut id = serde_json::to_value(&id).unwrap();
            decode(&mut id);
            id.to_string()
        })
    }

    #[test]
    fn any_number_and_text_is_an_id() {
        for json in ["7", "-1", "1.5", "1e3", "18446744073709551616", r#""x""#, r#""acetate-id:7""#]
        {
            let mut id: Value = serde_json::from_str(json).unwrap();
            let client = id.clone();
            encode(&mut id);
            assert!(serde_json::from_value::<RequestId>(id.clone()).is_ok(), "{json}");
            decode(&mut id);
            assert_eq!(id, client);
        }
        for invalid in ["null", "{}", "true"] {
            let mut id: Value = serde_json::from_str(invalid).unwrap();
            encode(&mut id);
            assert!(serde_json::from_value::<RequestId>(id).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_id_is_that_of_the_outermost_object() {
        for (text, expected) in [
            (r#"{"id": 7, "params": {"id": 8}}"#, Some("7")),
            (r#"{"params": {"id": 8, "a": [1, {"id": 9}]}, "id":"x\"y"}"#, Some(r#""x\"y""#)),
            (r#"{"params": "\"id\": 8, }", "jsonrpc": "2.0", "id" : 12 }"#, Some("12")),
            (r#"{"id": 1.5}"#, Some("1.5")),
            (r#"{"params": {"id": 8}}"#, None),
            (r#"{"id": {"id": 8}}"#, None),
            (r#"[{"id": 8}]"#, None),
            (r#"{"x": "id", "y": 3}"#, None),
        ] {
            assert_eq!(id(text).as_deref(), expected, "{text}");
        }
        let long = format!(r#"{{"id": "{}"}}"#, "x".repeat(MAX_ID_BYTES));
        assert_eq!(id(&long), None);
    }
}
