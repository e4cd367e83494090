//! Validator processes: check content against schemas. Time and memory of a check are not bounded
//! by the content's size, but a process can be limited and killed.
//!
//! | File | What |
//! |---|---|
//! | `frame` | the protocol between server and validator process |
//! | `pool` | the validator processes of a server |
//! | `process` | one validator process, as the server sees it |
//! | `serve` | the main loop of a validator process |

mod frame;
mod pool;
mod process;
mod serve;

pub(super) use pool::ValidatorPool;
pub use process::ValidatorCommand;
pub use serve::serve_validator;
