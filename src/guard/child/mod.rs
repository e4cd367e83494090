//! Content is checked against a schema in processes of their own: the time and memory that this
//! takes is not bounded by the size of the content, and a process can be bounded and killed.
//!
//! | File | What |
//! |---|---|
//! | `frame` | what the server and a validator process say to each other |
//! | `pool` | the processes of a server |
//! | `process` | one of them, as the server sees it |
//! | `serve` | what runs in it |

mod frame;
mod pool;
mod process;
mod serve;

pub(super) use pool::ValidatorPool;
pub use process::ValidatorCommand;
pub use serve::serve_validator;
