//! Checks content against schemas in child processes, because a check's time and memory are not
//! bounded by the content's size. A process can be bounded and killed.
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
