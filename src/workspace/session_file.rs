//! Detects that the file of a served session was removed or replaced. Later changes would go to an
//! unlinked file, and be lost when the server ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::overlay::Overlay;

/// Interval of the checks; each is one `stat`.
const FILE_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Locked while a file of a directory is looked at.
type LookTurn = Arc<AsyncMutex<()>>;

/// The turns of directories. One that hangs keeps one thread, however many sessions are in it.
static TURNS: Mutex<BTreeMap<PathBuf, Weak<AsyncMutex<()>>>> = Mutex::new(BTreeMap::new());

/// Device and inode number.
type FileIdentity = (u64, u64);

/// Checks the file periodically from now on. Once it is missing or another file, logs an error and
/// makes the overlay read-only.
pub(super) fn watch(
    session: PathBuf,
    overlay: Arc<Overlay>,
) -> impl Future<Output = ()> + Send + 'static {
    // Looked at before the task first runs: the file may be gone by then.
    let opened = identity(&session).ok().flatten();
    async move {
        if let Some(opened) = opened {
            watch_identity(&session, opened, &overlay).await;
        }
    }
}

async fn watch_identity(session: &Path, opened: FileIdentity, overlay: &Overlay) {
    let turn = turn_of(session.parent().unwrap_or(session));
    loop {
        tokio::time::sleep(FILE_LOOK_INTERVAL).await;
        let what = match look(session, &turn).await {
            Ok(Some(found)) if found == opened => continue,
            Ok(Some(_)) => "replaced by another file",
            Ok(None) => "removed",
            // The state of the file is unknown.
            Err(_) => continue,
        };
        overlay.turn_read_only();
        tracing::error!(
            session = %session.display(),
            "the session file was {what} while it is served: every change is refused from now on, \
             and what this server holds is lost when it ends; save it through a mount, then \
             start the server again"
        );
        return;
    }
}

/// The turn of a directory.
fn turn_of(dir: &Path) -> LookTurn {
    let mut turns = TURNS.lock();
    if let Some(turn) = turns.get(dir).and_then(Weak::upgrade) {
        return turn;
    }
    turns.retain(|_, turn| turn.strong_count() > 0);
    let turn = LookTurn::default();
    turns.insert(dir.to_owned(), Arc::downgrade(&turn));
    turn
}

/// [`identity`], on a thread that may hang, once no other file of the directory is looked at.
async fn look(session: &Path, turn: &LookTurn) -> std::io::Result<Option<FileIdentity>> {
    let turn = Arc::clone(turn).lock_owned().await;
    let session = session.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let found = identity(&session);
        drop(turn);
        found
    });
    looking.await?
}

/// Identity of the file at a path; `None` if there is none.
fn identity(path: &Path) -> std::io::Result<Option<FileIdentity>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
