//! Limits of context nodes.

/// Length of a URI, in bytes.
pub const URI_BYTES: usize = 1024;

/// Length of one part of a URI, in bytes.
pub const PART_BYTES: usize = 128;

/// Length of the content, in bytes.
pub const CONTENT_BYTES: u64 = 16 << 20;

/// Length of the abstract (L0), in characters, set by the specification.
pub const ABSTRACT_CHARS: usize = 100;

/// Length of the overview (L1), in bytes.
pub const OVERVIEW_BYTES: u64 = 64 << 10;

/// Lines of an overview that is derived from headings.
pub const OVERVIEW_HEADINGS: usize = 100;

/// Lines of an overview that is derived from content without headings.
pub const OVERVIEW_LINES: usize = 10;

/// Length of `.meta.json`, in bytes.
pub const META_BYTES: u64 = 64 << 10;

/// Tags per node.
pub const TAGS: usize = 64;

/// Length of a tag, in characters; equal to the limit in `meta.schema.json`.
pub const TAG_CHARS: usize = 128;

/// Length of `.relations.json`, in bytes.
pub const RELATIONS_BYTES: u64 = 4 << 20;

/// Edges per node; equal to the limit in `relations.schema.json`.
pub const EDGES: usize = 1024;

/// Length of an event, in bytes: an UPSERT_CONTEXT contains the three layers.
pub const EVENT_BYTES: u64 = 1 << 20;

/// Length of the content in an event's record, in bytes; longer content is truncated.
pub const RECORD_TEXT_BYTES: usize = 64 << 10;

/// Failed deliveries after which an event goes to the dead letters.
pub const MAX_RETRY: u64 = 3;

/// Nodes or events per listing.
pub const LISTED: usize = 100_000;
