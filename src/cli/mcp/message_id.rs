//! Finds the id of a request that is too long to be kept, so that its refusal reaches its caller.

use rmcp::model::RequestId;

use super::limits::MAX_ID_BYTES;

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
        serde_json::from_slice(self.id.as_deref()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<String> {
        let mut finder = MessageIdFinder::default();
        finder.read(text.as_bytes());
        finder.found().map(|id| serde_json::to_string(&id).unwrap())
    }

    #[test]
    fn the_id_is_that_of_the_outermost_object() {
        for (text, expected) in [
            (r#"{"id": 7, "params": {"id": 8}}"#, Some("7")),
            (r#"{"params": {"id": 8, "a": [1, {"id": 9}]}, "id":"x\"y"}"#, Some(r#""x\"y""#)),
            (r#"{"params": "\"id\": 8, }", "jsonrpc": "2.0", "id" : 12 }"#, Some("12")),
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
