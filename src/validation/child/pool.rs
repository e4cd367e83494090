//! The validator processes of a server. Each check holds a permit, so there are no more processes
//! than permits; a process is started when a content finds none idle.

use parking_lot::{Mutex, MutexGuard};

use super::process::{CheckVerdict, Process, ValidatorCommand};
use crate::validation::limits::{ChildLimits, MAX_KEPT_CONTENT_BYTES};
use crate::validation::lines::Form;
use crate::validation::schema::JsonSchema;
use crate::validation::violation::Violation;

/// The validator processes of a server; they end when it is dropped.
#[derive(Debug)]
pub(in crate::validation) struct ValidatorPool {
    command: ValidatorCommand,
    limits: ChildLimits,
    idle: Mutex<Vec<Process>>,
}

impl ValidatorPool {
    /// No process yet.
    pub(in crate::validation) fn new(command: ValidatorCommand, limits: ChildLimits) -> Self {
        Self { command, limits, idle: Mutex::default() }
    }

    /// Checks a content against a schema.
    ///
    /// # Errors
    /// The content does not fit; or that cannot be told within the limits, or not at all.
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
            // What a large content took stays with a process: the allocator keeps it.
            self.idle().extend(process.filter(|_| content.len() <= MAX_KEPT_CONTENT_BYTES));
            if let CheckVerdict::Ended(status) = checked {
                tracing::warn!(%status, "a validator process ended");
                // It may have been ended for something else, or before the content came.
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
            Violation::new(format_args!("cannot be checked: no validator process starts: {error}"))
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock()
    }
}
