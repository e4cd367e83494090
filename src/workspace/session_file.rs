//! Notices that the file of a session that is served was removed or replaced: what is changed from
//! then on is in a file that has no name, and goes with the server.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::overlay::Overlay;

/// Time between two looks, each one `stat`.
const FILE_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Device and inode number.
type FileIdentity = (u64, u64);

/// Looks at the file again and again; once another one is there, or none, says so and lets the
/// overlay refuse every change.
pub(super) async fn watch(session: PathBuf, overlay: Arc<Overlay>) {
    let Ok(Some(opened)) = identity(&session) else { return };
    loop {
        tokio::time::sleep(FILE_LOOK_INTERVAL).await;
        let what = match identity(&session) {
            Ok(Some(found)) if found == opened => continue,
            Ok(Some(_)) => "replaced by another file",
            Ok(None) => "removed",
            // It is not known whether it is there.
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

/// What is at a path; `None` where nothing is.
fn identity(path: &Path) -> std::io::Result<Option<FileIdentity>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
