//! The pool of validator processes. Each check holds a permit, so there are at most as many
//! processes as permits. A process is started if none is idle.

use parking_lot::{Mutex, MutexGuard};

use super::process::{CheckVerdict, Process, ValidatorCommand};
use crate::system_error::words;
use crate::validation::limits::{ChildLimits, MAX_KEPT_CONTENT_BYTES};
use crate::validation::lines::Form;
use crate::validation::schema::JsonSchema;
use crate::validation::violation::Violation;

/// The validator processes of a server; dropping it kills them.
#[derive(Debug)]
pub(in crate::validation) struct ValidatorPool {
    command: ValidatorCommand,
    limits: ChildLimits,
    idle: Mutex<Vec<Process>>,
}

impl ValidatorPool {
    /// An empty pool.
    pub(in crate::validation) fn new(command: ValidatorCommand, limits: ChildLimits) -> Self {
        Self { command, limits, idle: Mutex::default() }
    }

    /// Checks content against a schema.
    ///
    /// # Errors
    /// The content does not match, or cannot be checked within the limits, or no process can be
    /// started.
    pub(in crate::validation) async fn check(
        &self,
        schema: &JsonSchema,
        form: Form,
        content: &[u8],
    ) -> Result<(), Violation> {
        loop {
            let idle = self.idle().pop();
            let process = match idle {
                Some(process) => process,
                None => self.start().await?,
            };
            let is_new = !process.has_answered;
            let (checked, process) = process.check(schema, form, content).await;
            // After large content, the process's allocator keeps much memory.
            self.idle().extend(process.filter(|_| content.len() <= MAX_KEPT_CONTENT_BYTES));
            if let CheckVerdict::Ended(status) = checked {
                tracing::warn!(%status, "a validator process ended");
                // A reused process may have ended for another reason, or before it got the content.
                if !is_new {
                    continue;
                }
            }
            return checked.into_result(&self.limits);
        }
    }

    async fn start(&self) -> Result<Process, Violation> {
        Process::start(&self.command, self.limits).await.map_err(|error| {
            tracing::error!(%error, "cannot start a validator process");
            let why = words(&error);
            Violation::new(format_args!("cannot be checked: no validator process starts: {why}"))
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock()
    }
}
