//! Events: changes of a node, to be reported to an external index.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use super::error::{ContextError, Result};
use super::limits::RECORD_TEXT_BYTES;
use super::meta::{NodeMeta, pretty};
use super::schema::DocumentKind;
use super::summary::{SummaryTexts, beginning};
use super::uri::Uri;

/// A time and random bytes, for the id of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventStamp {
    /// The current time.
    pub now: Timestamp,
    /// Random bytes.
    pub random: [u8; 8],
}

impl EventStamp {
    /// The system's clock and random bytes.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn current() -> Result<Self> {
        let mut random = [0; 8];
        let filled = getrandom::fill(&mut random).map_err(std::io::Error::other);
        filled.map_err(ContextError::Random)?;
        Ok(Self { now: Timestamp::now(), random })
    }

    /// The time in documents: RFC 3339 in UTC, to the second.
    pub(super) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// A UUID of version 7 (RFC 9562 §5.7) with 12 more bits of the time (§6.2, method 3): ids sort
    /// by time.
    fn id(&self) -> String {
        let nanos = u128::try_from(self.now.as_nanosecond()).unwrap_or(0);
        let (millis, rest) = (nanos / 1_000_000, nanos % 1_000_000);
        let fraction = (rest << 12) / 1_000_000;
        let random = u128::from(u64::from_be_bytes(self.random) >> 2);
        let bits = ((millis & 0xffff_ffff_ffff) << 80) | (7 << 76) | (fraction << 64) | (2 << 62);
        let hex = format!("{:032x}", bits | random);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// A node was created or replaced.
    UpsertContext,
    /// A node was removed.
    DeleteContext,
    /// A node was moved.
    MoveContext,
    /// An edge was added or replaced.
    UpsertRelation,
}

impl EventType {
    const ALL: [Self; 4] =
        [Self::UpsertContext, Self::DeleteContext, Self::MoveContext, Self::UpsertRelation];

    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpsertContext => "UPSERT_CONTEXT",
            Self::DeleteContext => "DELETE_CONTEXT",
            Self::MoveContext => "MOVE_CONTEXT",
            Self::UpsertRelation => "UPSERT_RELATION",
        }
    }
}

/// A valid event. Unknown fields are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Event(Map<String, Value>);

impl Event {
    /// A node was created or replaced; includes the layers that an index stores.
    pub(super) fn upsert(
        stamp: &EventStamp,
        uri: &Uri,
        meta: &NodeMeta,
        layers: &SummaryTexts<'_>,
    ) -> Self {
        let payload = json!({ "records": records(uri, meta, layers) });
        Self::new(stamp, EventType::UpsertContext, uri, payload)
    }

    /// A node was removed.
    pub(super) fn delete(stamp: &EventStamp, uri: &Uri) -> Self {
        Self::new(stamp, EventType::DeleteContext, uri, json!({}))
    }

    /// A node was moved.
    pub(super) fn moved(stamp: &EventStamp, uri: &Uri, to: &Uri) -> Self {
        Self::new(stamp, EventType::MoveContext, uri, json!({ "new_uri": to.as_str() }))
    }

    /// An edge was added or replaced.
    pub(super) fn related(stamp: &EventStamp, uri: &Uri, edge: Value) -> Self {
        Self::new(stamp, EventType::UpsertRelation, uri, json!({ "edges": [edge] }))
    }

    fn new(stamp: &EventStamp, event_type: EventType, uri: &Uri, payload: Value) -> Self {
        let mut map = Map::new();
        map.insert("event_id".to_owned(), stamp.id().into());
        map.insert("event_type".to_owned(), event_type.as_str().into());
        map.insert("uri".to_owned(), uri.as_str().into());
        map.insert("payload".to_owned(), payload);
        map.insert("status".to_owned(), "PENDING".into());
        map.insert("retry_count".to_owned(), 0.into());
        map.insert("created_at".to_owned(), stamp.time().into());
        Self(map)
    }

    /// Parses a document; the error says what is wrong.
    pub(super) fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        match DocumentKind::Event.parse(text)? {
            Value::Object(map) => Ok(Self(map)),
            _ => Err("not an object".to_owned()),
        }
    }

    /// The text of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        pretty(&Value::Object(self.0.clone()))
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Id of the event, a UUID.
    pub fn id(&self) -> &str {
        self.text("event_id")
    }

    /// Type of the event.
    pub fn event_type(&self) -> EventType {
        let word = self.text("event_type");
        let known = EventType::ALL.into_iter().find(|known| known.as_str() == word);
        known.unwrap_or(EventType::UpsertContext)
    }

    /// URI of the node, before a move.
    pub fn uri(&self) -> &str {
        self.text("uri")
    }

    /// Target of a move.
    pub(super) fn new_uri(&self) -> Option<Uri> {
        self.0.get("payload")?.get("new_uri")?.as_str()?.parse().ok()
    }

    /// PENDING, PROCESSING or FAILED.
    pub fn status(&self) -> &str {
        self.text("status")
    }

    /// Number of failed deliveries.
    pub fn retry_count(&self) -> u64 {
        self.0.get("retry_count").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Creation time, in RFC 3339 format.
    pub fn created_at(&self) -> &str {
        self.text("created_at")
    }

    pub(super) fn set(&mut self, status: &str, retry_count: u64) {
        self.0.insert("status".to_owned(), status.into());
        self.0.insert("retry_count".to_owned(), retry_count.into());
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The records that an index stores, one per layer. The id of a record depends on node and layer,
/// not on the version.
fn records(uri: &Uri, meta: &NodeMeta, layers: &SummaryTexts<'_>) -> Vec<Value> {
    let text = beginning(layers.content, RECORD_TEXT_BYTES);
    let texts = [layers.abstract_text, layers.overview, text];
    let record = |(level, text): (usize, &str)| {
        let mut metadata = meta.index_metadata();
        if level == 2 {
            let known = meta.fields();
            for key in ["tags", "version", "created_at", "updated_at"] {
                metadata[key] = known.get(key).cloned().unwrap_or(Value::Null);
            }
            metadata["content_bytes"] = layers.content.len().into();
            metadata["truncated"] = (text.len() < layers.content.len()).into();
        }
        json!({
            "id": record_id(uri, level),
            "uri": uri.as_str(),
            "level": level,
            "text": text,
            "filters": { "account_id": uri.account(), "owner_space": uri.owner_space() },
            "metadata": metadata,
        })
    };
    texts.into_iter().enumerate().map(record).collect()
}

fn record_id(uri: &Uri, level: usize) -> String {
    let digest = Sha1::digest(format!("{uri}#{level}"));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::EventStamp;

    #[test]
    fn ids_are_uuids_that_sort_by_time() {
        let stamp = |nanos: i128| EventStamp {
            now: jiff::Timestamp::from_nanosecond(1_645_557_742_000_000_000 + nanos).unwrap(),
            random: [0x63, 0x13, 0x0c, 0x53, 0x07, 0x3e, 0x01, 0x3d],
        };
        // The time of RFC 9562, appendix A.6.
        assert_eq!(stamp(0).id(), "017f22e2-79b0-7000-98c4-c314c1cf804f");
        assert!(stamp(0).id() < stamp(300).id() && stamp(999_999).id() < stamp(1_000_000).id());
        assert_eq!(stamp(0).time(), "2022-02-22T19:22:22Z");
    }
}
