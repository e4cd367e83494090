//! The mount points below a directory: a rename of a directory above one takes the mounted
//! filesystem along.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Target;
use crate::base::BasePath;

/// The mounts that this process sees (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// The field of a mount's line with its mount point.
const MOUNT_POINT: usize = 4;

impl Target {
    /// The mount points below the directory. None are found where the system has no
    /// `MOUNTS`.
    pub fn mounts_below(&self) -> BTreeSet<BasePath> {
        let mounts = std::fs::read(MOUNTS).unwrap_or_default();
        mounts_in(&mounts, self.path())
    }
}

fn mounts_in(mounts: &[u8], top: &Path) -> BTreeSet<BasePath> {
    let lines = mounts.split(|&byte| byte == b'\n');
    let points = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(MOUNT_POINT));
    let below = points.filter_map(|point| {
        let point = unescaped(point);
        let below = Path::new(std::ffi::OsStr::from_bytes(&point)).strip_prefix(top).ok()?;
        BasePath::from_bytes(below.as_os_str().as_bytes()).filter(|path| !path.is_root())
    });
    below.collect()
}

/// A path with its octal escapes replaced, such as `\040` for a space.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let digits = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_below_a_directory_are_found_by_whole_names() {
        let mounts = b"22 28 0:20 / /base rw - ext4 /dev/sda1 rw
23 22 0:21 / /base/d/m rw shared:1 - tmpfs tmpfs rw
24 22 0:22 / /base/with\\040space\\134 rw - tmpfs tmpfs rw
25 22 0:23 / /based/m rw - tmpfs tmpfs rw
";
        let found = mounts_in(mounts, Path::new("/base"));
        let found: Vec<_> = found.iter().map(|path| path.as_bytes()).collect();
        assert_eq!(found, [&b"d/m"[..], b"with space\\"]);
    }
}
