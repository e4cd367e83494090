//! A base that does not answer for as long as it is told not to.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use acetate::base::BaseError;

use super::hooked_base::{BaseCall, Hook, HookedBase};

/// A directory whose calls wait while it hangs.
pub type HangingBase = HookedBase<Hanging>;

/// Whether calls wait.
#[derive(Default)]
pub struct Hanging {
    state: Mutex<State>,
    answers: Condvar,
}

#[derive(Default)]
struct State {
    hangs: bool,
    waiting: usize,
}

impl HangingBase {
    pub fn new(dir: &Path) -> Arc<Self> {
        Self::over(dir, Hanging::default())
    }

    /// Answers nothing from now on, or everything again.
    pub fn hang(&self, hangs: bool) {
        self.hook.state.lock().unwrap().hangs = hangs;
        self.hook.answers.notify_all();
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.hook.state.lock().unwrap().waiting
    }
}

impl Hook for Hanging {
    fn before(&self, _: BaseCall) -> Result<(), BaseError> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state = self.answers.wait_while(state, |state| state.hangs).unwrap();
        state.waiting -= 1;
        Ok(())
    }
}
