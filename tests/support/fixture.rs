//! Host trees from one string literal.
//!
//! One object a line, parents are made as needed:
//!
//! ```text
//! dir/ 755                     a directory
//! dir/file 644 "content\n"     a regular file
//! dir/pipe 600 fifo            a named pipe
//! link -> target               a symbolic link
//! hard = dir/file              another name of a file above
//! ```

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A base for random operations: files with several names, and the same few names on all levels.
pub const FEW_NAMES: &str = r#"
    a/a "1"
    a/b/a "22"
    a/b/c/a "333"
    a/c -> b
    a/e = a/a
    b/a "4444"
    b/b/b/c "55555"
    b/e = a/a
    c "666666"
    d/a = c
    e/
"#;

/// Makes the objects of `text` below `root`.
#[track_caller]
pub fn build(root: &Path, text: &str) {
    let mut dir_modes = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((name, target)) = line.split_once(" -> ") {
            symlink(target, with_parents(root, name)).unwrap();
        } else if let Some((name, other)) = line.split_once(" = ") {
            fs::hard_link(root.join(other), with_parents(root, name)).unwrap();
        } else {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let default = if name.ends_with('/') { 0o755 } else { 0o644 };
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            let (mode, rest) = match u32::from_str_radix(word, 8) {
                Ok(mode) => (mode, after),
                Err(_) => (default, rest),
            };
            let path = with_parents(root, name.trim_end_matches('/'));
            if name.ends_with('/') {
                fs::create_dir_all(&path).unwrap();
                dir_modes.push((path, mode));
                continue;
            }
            match rest.trim() {
                "fifo" => {
                    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
                    assert!(made.success());
                }
                content => fs::write(&path, unquote(content)).unwrap(),
            }
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }
    // The deepest first, and all at the end: a directory may forbid us to work in it.
    for (path, mode) in dir_modes.iter().rev() {
        fs::set_permissions(path, Permissions::from_mode(*mode)).unwrap();
    }
}

fn with_parents(root: &Path, name: &str) -> std::path::PathBuf {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

fn unquote(content: &str) -> String {
    let content = content.strip_prefix('"').unwrap_or(content);
    content.strip_suffix('"').unwrap_or(content).replace("\\n", "\n")
}
