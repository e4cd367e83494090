//! Which filesystem a path is on, without touching it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mounts that this process sees (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// The device number of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilesystemId {
    major: u32,
    minor: u32,
}

/// The mounted filesystems, by their mount points.
#[derive(Debug, Default)]
pub(super) struct HostMounts(HashMap<PathBuf, FilesystemId>);

impl HostMounts {
    /// Those of now; none where the system has no [`MOUNTS`].
    pub(super) fn read() -> Self {
        Self::parse(&std::fs::read(MOUNTS).unwrap_or_default())
    }

    fn parse(mounts: &[u8]) -> Self {
        // Of those at one place, the last one is seen.
        Self(mounts.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// The filesystem of a path without symbolic links.
    pub(super) fn of(&self, path: &Path) -> Option<FilesystemId> {
        path.ancestors().find_map(|dir| self.0.get(dir)).copied()
    }
}

/// The mount point and the filesystem of a line.
fn mount(line: &[u8]) -> Option<(PathBuf, FilesystemId)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let at = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    Some((at, FilesystemId { major: major.parse().ok()?, minor: minor.parse().ok()? }))
}

/// A field with its octal escapes replaced, such as `\040` for a space.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.split_at_checked(3).filter(|_| byte == b'\\');
        let decoded = escape.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, after))
        });
        let (byte, after) = decoded.unwrap_or((byte, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_filesystem_that_is_mounted_last_and_deepest() {
        let mounts = HostMounts::parse(
            b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:40 / /srv/with\\040space rw shared:1 - fuse none rw
24 22 0:41 / /srv/d rw - tmpfs tmpfs rw
25 24 0:42 / /srv/d rw - tmpfs tmpfs rw
",
        );
        let minor = |path: &str| mounts.of(path.as_ref()).map(|it| (it.major, it.minor));
        let found = ["/", "/srv/done", "/srv/d", "/srv/d/x", "/srv/with space/x"].map(minor);
        assert_eq!(found, [(8, 1), (8, 1), (0, 42), (0, 42), (0, 40)].map(Some));
        assert_eq!(HostMounts::default().of("/x".as_ref()), None);
    }
}
