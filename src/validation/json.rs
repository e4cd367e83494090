//! Strict JSON: valid UTF-8, one value, at most 128 levels deep.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::violation::Violation;
use crate::json;

/// Parses one JSON value.
pub(super) fn value(text: &[u8]) -> Result<Value, Violation> {
    json::value(text).map_err(|error| violation(&error))
}

/// Checks that a text is one JSON value, without building it.
pub(super) fn check(text: &[u8]) -> Result<(), Violation> {
    serde_json::from_slice::<Sound>(text).map(|_| ()).map_err(|error| violation(&error))
}

fn violation(error: &serde_json::Error) -> Violation {
    let text = error.to_string();
    // The line number is a field of its own.
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let reason = format!("not JSON: {what}, at column {}", error.column());
    Violation::at(error.line().max(1) as u64, reason)
}

/// Parses any value and keeps nothing. Unlike [`serde::de::IgnoredAny`], it checks strings and
/// nesting.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Check)
    }
}

struct Check;

impl<'de> Visitor<'de> for Check {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Sound, A::Error> {
        while seq.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sound, A::Error> {
        while map.next_entry::<Sound, Sound>()?.is_some() {}
        Ok(Sound)
    }
}
