//! Refuses inherited descriptors that lead into the base: through them, the command could change
//! the base despite the mount over it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::text;
use crate::mounting::namespace::paths_to;

/// O_CLOEXEC on all Linux architectures that acetate is built for.
const CLOEXEC: u32 = 0o2_000_000;

/// The names of the standard descriptors.
const NAMES: [&str; 3] = ["standard input", "standard output", "standard error"];

/// Refuses descriptors that lead into `base`.
///
/// # Errors
/// There is such a descriptor.
pub(super) fn check(base: &Path) -> Result<(), CliError> {
    let Some((number, path)) = found(base, &paths_to(base)?) else {
        return Ok(());
    };
    let name = match NAMES.get(number) {
        Some(name) => (*name).to_owned(),
        None => format!("descriptor {number}"),
    };
    let path = text::name(path.as_os_str().as_encoded_bytes());
    let what = format!("{name} is open at {path}, in the base: the command could change it there");
    let hint = match number {
        0..=2 => "redirect in the command: acetate run SESSION.db -- sh -c 'CMD > FILE'; or to a \
                  file outside of the base"
            .to_owned(),
        _ => format!("close it for this command: acetate run ... {number}<&-"),
    };
    Err(CliError::new(what).with_hint(hint))
}

/// Refuses descriptors through which a sandboxed command could change something outside: all except
/// pipes, devices without storage, and redirected standard streams.
///
/// # Errors
/// There is such a descriptor.
pub(super) fn check_for_sandbox() -> Result<(), CliError> {
    let is_refused = |number: usize, found: &Metadata| match number {
        0..=2 => found.is_dir(),
        _ => !found.file_type().is_fifo() && !keeps_nothing(found) && is_passed_on(number),
    };
    let Some((number, path)) = first(is_refused) else {
        return Ok(());
    };
    let path = text::name(path.as_os_str().as_encoded_bytes());
    let what = format!("descriptor {number} is open at {path}: a sandboxed command would have it");
    let hint = format!("close it for this command: acetate run ... {number}<&-");
    Err(CliError::new(what).with_hint(hint))
}

/// Whether it is `/dev/null`, `zero`, `full`, `random` or `urandom`: major 1 in the kernel's
/// devices.txt.
fn keeps_nothing(found: &Metadata) -> bool {
    let is_one = matches!(found.rdev(), 0x103 | 0x105 | 0x107 | 0x108 | 0x109);
    found.file_type().is_char_device() && is_one
}

/// Whether an executed program inherits a descriptor (proc_pid_fdinfo(5)).
fn is_passed_on(number: usize) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & CLOEXEC == 0)
}

/// The first descriptor that leads into `base`, and its path. `paths` are all paths of the base.
fn found(base: &Path, paths: &[PathBuf]) -> Option<(usize, PathBuf)> {
    let device = base.metadata().ok()?.dev();
    first(|number, found| {
        let is_of_base =
            found.dev() == device && (found.is_dir() || found.is_file() || found.is_symlink());
        let path = fs::read_link(format!("/proc/self/fd/{number}"));
        is_of_base && path.is_ok_and(|path| paths.iter().any(|base| path.starts_with(base)))
    })
}

/// The first descriptor that `is_wanted`, and its path.
fn first(is_wanted: impl Fn(usize, &Metadata) -> bool) -> Option<(usize, PathBuf)> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.flatten();
    let mut numbers: Vec<usize> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().find_map(|number| {
        let link = PathBuf::from(format!("/proc/self/fd/{number}"));
        let found = link.metadata().ok()?;
        is_wanted(number, &found).then_some((number, fs::read_link(&link).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_what_is_open_in_the_base_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir(dir.join("base")).unwrap();
        let base = dir.join("base");
        let found = |base: &Path| super::found(base, &[base.to_owned()]);
        let outside = File::create(dir.join("baseless")).unwrap();
        assert_eq!(found(&base), None);
        drop(outside);
        let file = File::create(base.join("file")).unwrap();
        assert_eq!(found(&base).unwrap().1, base.join("file"));
        let said = check(&base).unwrap_err();
        assert!(said.to_string().contains("base/file, in the base"), "{said}");
        fs::remove_file(base.join("file")).unwrap();
        assert!(found(&base).is_some(), "a file without a name is one of the base's too");
        drop(file);
        let _itself = File::open(&base).unwrap();
        assert_eq!(found(&base).unwrap().1, base);
    }
}
