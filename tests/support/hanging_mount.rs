//! A filesystem of the host that answers no call: FUSE, which no process serves.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mounts it, says so, and holds it until it is killed.
const SCRIPT: &str = "exec 3<>/dev/fuse && \
    mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" && \
    echo mounted && exec sleep infinity";

/// A directory whose calls wait until this is dropped; they fail then.
pub struct HangingMount {
    dir: PathBuf,
    holder: Child,
}

impl HangingMount {
    /// Mounts over a directory; `None` without the right to.
    pub fn over(dir: &Path) -> Option<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(dir).stdin(Stdio::null());
        let mut holder = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = [0; 8];
        match holder.stdout.take().unwrap().read_exact(&mut said) {
            Ok(()) => Some(Self { dir: dir.to_owned(), holder }),
            Err(_) => {
                holder.wait().unwrap();
                None
            }
        }
    }
}

impl Drop for HangingMount {
    fn drop(&mut self) {
        let _ended = self.holder.kill().and_then(|()| self.holder.wait());
        let _unmounted = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}
