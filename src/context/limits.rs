//! What a context node may take.

/// Length of a URI, in bytes.
pub const URI_BYTES: usize = 1024;

/// Length of one part of a URI, in bytes.
pub const PART_BYTES: usize = 128;

/// Length of the content, in bytes.
pub const CONTENT_BYTES: u64 = 16 << 20;

/// Length of the abstract (L0), in characters, as the specification says.
pub const ABSTRACT_CHARS: usize = 100;

/// Length of the overview (L1), in bytes.
pub const OVERVIEW_BYTES: u64 = 64 << 10;

/// Lines of an overview that is made from headings.
pub const OVERVIEW_HEADINGS: usize = 100;

/// Lines of an overview that is made from content without headings.
pub const OVERVIEW_LINES: usize = 10;

/// Length of `.meta.json`, in bytes.
pub const META_BYTES: u64 = 64 << 10;

/// Tags of a node.
pub const TAGS: usize = 64;

/// Length of a tag, in characters; `meta.schema.json` says the same.
pub const TAG_CHARS: usize = 128;

/// Length of `.relations.json`, in bytes.
pub const RELATIONS_BYTES: u64 = 4 << 20;

/// Edges of a node; `relations.schema.json` says the same.
pub const EDGES: usize = 1024;

/// Length of an event, in bytes: an UPSERT_CONTEXT has the three layers in it.
pub const EVENT_BYTES: u64 = 1 << 20;

/// Text of the content in an event's record, in bytes; a longer one is cut there.
pub const RECORD_TEXT_BYTES: usize = 64 << 10;

/// Times that an event may fail; with the last it goes to the dead letters.
pub const MAX_RETRY: u64 = 3;

/// Nodes, or events, in one listing.
pub const LISTED: usize = 100_000;
