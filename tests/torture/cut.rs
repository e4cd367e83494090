//! What is left after a power cut, looked at: it opens, passes the checker, holds one of the states
//! that it may, and says by its write verifier if something that was answered is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use acetate::vfs::{CreateHow, FileId, Locator, Vfs};

use crate::disk::{Event, Mark, Medium};
use crate::ground::{Ground, SESSION};
use crate::life::is_state;
use crate::reference::Reference;
use crate::support::check::violations;
use crate::support::client::{Client, Result as Answer, mode};
use crate::support::served::runtime;
use crate::support::tree::{Tree, read_tree};

/// A moment at which the power is cut.
pub struct Cut<'a> {
    pub ground: &'a Ground,
    pub states: &'a [Reference],
    pub seen: &'a [(usize, FileId)],
    pub verifier: u64,
    /// The boot after it.
    pub boot: u64,
    pub progress: Progress,
}

/// The last states that were promised, answered and asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub stable: usize,
    pub answered: usize,
    pub issued: usize,
}

impl Progress {
    /// Goes on in time.
    pub fn apply(&mut self, event: &Event) {
        match *event {
            Event::Mark(Mark::Issued(state)) => self.issued = state,
            Event::Mark(Mark::Answered(state)) => self.answered = self.answered.max(state),
            Event::Mark(Mark::Stable(state)) => self.stable = self.stable.max(state),
            _ => {}
        }
    }
}

/// A handle of the state that does not lead to its object, and what it leads to.
fn misled<'a>(state: &'a Reference, client: &Client) -> Option<(&'a Locator, Answer<FileId>)> {
    let handles = state.nodes.values().filter_map(|node| node.handle.as_ref());
    let mut found = handles.map(|at| (at, client.getattr(at).map(|attr| attr.fileid)));
    found.find(|(at, id)| *id != Ok(at.fileid()))
}

impl Cut<'_> {
    /// Opens what the cut left; which state it holds.
    fn examine(&self, image: &Medium, works: bool) -> Result<usize, String> {
        let answered = self.progress.answered;
        let runtime = runtime();
        let path = image.path(SESSION);
        let opened = self.ground.serve(&path, self.boot, false, &runtime);
        let (epoch, served) = opened.map_err(|error| format!("it does not open: {error}"))?;
        let tree = read_tree(&served.root);
        let found = self.state_of(&tree, &served.root)?;
        if found < answered && epoch == self.verifier {
            return Err(format!("of {answered} answered {found} survived: same verifier"));
        }
        if works {
            let client = &served.root;
            let made = client.create(&b"made after the cut"[..], CreateHow::Guarded(mode(0o600)));
            let made = made.map_err(|error| format!("nothing can be made: {error}"))?;
            let id = made.object.fileid();
            let mut seen = self.seen.iter().filter(|(state, _)| *state <= answered);
            assert!(seen.all(|(_, seen)| *seen != id), "{made:?} was given out before");
            let synced = client.wait(client.overlay.commit(&client.caller, &Locator::ROOT));
            assert!(synced.result.is_ok(), "{synced:?}");
        }
        served.stop().map_err(|error| format!("it does not close: {error}"))?;
        let found_wrong = violations(&path);
        if found_wrong.is_empty() { Ok(found) } else { Err(format!("{found_wrong:#?}")) }
    }

    /// The last state that was promised or asked for since, with this tree and with handles that
    /// lead to its objects: a directory that was made once more has another handle, in the same
    /// tree.
    fn state_of(&self, tree: &Tree, client: &Client) -> Result<usize, String> {
        let Progress { stable, issued, .. } = self.progress;
        let mut wrong = None;
        for at in (stable..=issued).rev().filter(|&at| is_state(&self.states[at], tree)) {
            let Some((handle, found)) = misled(&self.states[at], client) else { return Ok(at) };
            wrong = wrong.or(Some(format!("state {at}: {handle:?} leads to {found:?}")));
        }
        Err(wrong.unwrap_or_else(|| self.complain(tree)))
    }

    fn complain(&self, tree: &Tree) -> String {
        let Progress { stable, issued, .. } = self.progress;
        let earlier = (0..stable).rev().find(|&at| is_state(&self.states[at], tree));
        match earlier {
            Some(at) => format!("state {at} is there, state {stable} was promised"),
            None => {
                let (ours, theirs) = (tree.len(), self.states[stable].names.len() - 1);
                format!("no state from {stable} to {issued}: {ours} objects, once {theirs}")
            }
        }
    }

    /// The same; whatever is asserted on the way is a complaint too.
    pub fn verdict(&self, image: &Medium, works: bool) -> Result<usize, String> {
        let verdict = catch_unwind(AssertUnwindSafe(|| self.examine(image, works)));
        verdict.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| "a panic without words".to_owned()))
        })
    }
}
