//! Limits of `acetate mcp`.

use std::time::Duration;

/// Calls that run at the same time; further requests are not read.
pub const MAX_CALLS: usize = 8;

/// The longest request, in bytes; the line of a longer one is skipped and refused.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The longest id of a request that is refused for its length, in bytes of JSON; a longer one is
/// answered as `null`.
pub const MAX_ID_BYTES: usize = 128;

/// The most content of one `write_file`, in bytes: one transaction replaces a file's content.
pub const MAX_WRITE_BYTES: usize = crate::control::limits::WHOLE_BYTES;

/// The most content of one `read_file`, and the largest file that is read as a resource, in bytes.
pub const MAX_READ_BYTES: u64 = 1 << 20;

/// The content of a `read_file` that names no length, in bytes.
pub const READ_BYTES: u64 = 256 << 10;

/// The most entries of one result (names, differences, changes, checkpoints, keys, matching lines).
pub const MAX_ENTRIES: usize = 1000;

/// The entries of a result for which no number is given.
pub const ENTRIES: usize = 200;

/// The most JSON of the entries of one result, in bytes; the result says where to continue.
pub const MAX_RESULT_BYTES: usize = 1 << 20;

/// The most of a patch that `diff` returns, in bytes.
pub const MAX_PATCH_BYTES: usize = 512 << 10;

/// The longest value that `kv_get` returns and `kv_set` stores, in bytes.
pub const MAX_KV_BYTES: usize = 1 << 20;

/// The content that one `search` looks at, in bytes.
pub const MAX_SEARCH_BYTES: u64 = 256 << 20;

/// The time of one `search`.
pub const MAX_SEARCH_TIME: Duration = Duration::from_secs(5);

/// Files on a page of resources.
pub const MAX_RESOURCES: usize = 200;

/// The time in which a page of resources is collected; it may have fewer.
pub const MAX_PAGE_TIME: Duration = Duration::from_secs(2);

/// The part of each argument that is recorded in `tool_calls`, in bytes of JSON.
pub const MAX_RECORDED_BYTES: usize = 4 << 10;
