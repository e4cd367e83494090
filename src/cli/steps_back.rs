//! What an undo takes back, in words.

use std::collections::HashSet;

use super::text;
use crate::delta::sqlite::{RestoreTakenBack, StepsBack};

/// What is taken back, as the end of a sentence; `None` if the log does not tell.
pub(super) fn words(steps: &StepsBack) -> Option<String> {
    let StepsBack { restored, discarded, changed } = steps;
    let mut parts = Vec::new();
    if let Some(RestoreTakenBack { checkpoint, paths: restored }) = restored {
        let checkpoint = text::name(checkpoint.as_bytes());
        parts.push(match restored.contains(&b"/"[..]) {
            true => format!("the restore of {checkpoint}"),
            false => format!("the restore of {} from {checkpoint}", paths(restored)),
        });
    }
    if !discarded.is_empty() {
        parts.push(format!("the discard of {}", paths(discarded)));
    }
    if !changed.is_empty() {
        parts.push(format!("changes of {}", paths(changed)));
    }
    (!parts.is_empty()).then(|| parts.join(", and "))
}

fn paths(paths: &HashSet<Vec<u8>>) -> String {
    let mut each = paths.iter();
    match (each.next(), each.next()) {
        (Some(only), None) => text::name(only),
        _ => text::count(paths.len(), "path"),
    }
}
