//! Every bound of the HTTP listener.

use std::time::Duration;

/// Connections at a time; for one more, the one that has been idle for longest is closed.
pub const MAX_ADMIN_CONNECTIONS: usize = 32;

/// Time in which the head of a request must be complete, from the connection on.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time of a connection beyond [`HEAD_TIMEOUT`], in which the client must have read the answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a request's head, in bytes.
pub const MAX_HEAD_BYTES: usize = 8 << 10;

/// Header lines of a request.
pub const MAX_HEADERS: usize = 64;

/// Size of a request's body, in bytes, where no request has a use for one.
pub const MAX_BODY_BYTES: u64 = 1 << 10;

/// Size of the body of `PUT /exports/NAME`, in bytes.
pub const MAX_EXPORT_BYTES: u64 = 256 << 10;

/// Size of the file of the token, in bytes.
pub const MAX_TOKEN_BYTES: u64 = 4096;

/// Shortest token, in bytes.
pub const MIN_TOKEN_BYTES: usize = 16;

/// Pause after accept(2) fails, mostly for lack of file descriptors.
pub const ADMIN_ACCEPT_PAUSE: Duration = Duration::from_millis(100);
