//! One pathspec, as git reads it (gitglossary(7), "pathspec"), with paths from the tree's root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::quoting::{unescaped, unquoted};
use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};
use crate::vfs::Name;

/// The characters that make a pathspec a glob.
const SPECIAL: &[u8] = b"*?[\\";

/// One pathspec.
#[derive(Debug)]
pub(super) struct Pathspec {
    /// It takes away what the others choose.
    pub is_exclude: bool,
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    /// This path, and all below it.
    Path(MergedPath),
    /// Whatever whole path the glob matches.
    Glob(GlobMatcher),
}

/// What stands before the pattern of a pathspec.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Magic {
    is_top: bool,
    is_exclude: bool,
    is_literal: bool,
    is_strict_glob: bool,
    ignores_case: bool,
}

impl Pathspec {
    /// Reads a pathspec. Relative ones begin at `current`, a directory of the tree. `is_known`
    /// says whether there is, or was, something at a path.
    ///
    /// # Errors
    /// It cannot be read, leads out of the tree, or names a path at which nothing is known.
    pub fn parse(
        text: &[u8],
        current: &MergedPath,
        is_known: &dyn Fn(&MergedPath) -> Result<bool>,
    ) -> Result<Self> {
        let (magic, pattern) = magic(text)?;
        let from = if magic.is_top { &MergedPath::root() } else { current };
        let spec = |matcher| Self { is_exclude: magic.is_exclude, matcher };
        // What other commands print is taken back, quoted as git does it or only escaped.
        let forms = [unquoted(pattern), Some(pattern.to_vec()), unescaped(pattern)];
        let mut first = None;
        for form in forms.into_iter().flatten() {
            let Some(path) = resolved(&form, from) else { continue };
            if is_known(&path)? {
                return Ok(spec(Matcher::Path(path)));
            }
            first = first.or(Some(path));
        }
        let is_glob = !magic.is_literal && pattern.iter().any(|byte| SPECIAL.contains(byte));
        if is_glob {
            return Ok(spec(Matcher::Glob(glob(pattern, from, magic)?)));
        }
        match first {
            // An exclusion of nothing excludes nothing.
            Some(path) if magic.is_exclude => Ok(spec(Matcher::Path(path))),
            Some(path) => Err(unknown(&path, current)),
            None => Err(outside(text)),
        }
    }

    /// One that names a path.
    pub fn path(path: MergedPath) -> Self {
        Self { is_exclude: false, matcher: Matcher::Path(path) }
    }

    /// The path, where it is no glob.
    pub fn as_path(&self) -> Option<&MergedPath> {
        match &self.matcher {
            Matcher::Path(path) => Some(path),
            Matcher::Glob(_) => None,
        }
    }

    /// Whether it matches a path.
    pub fn matches(&self, path: &MergedPath, is_dir: bool) -> bool {
        match &self.matcher {
            Matcher::Path(own) => path.is_within(own),
            Matcher::Glob(glob) => {
                let below_root = &path.as_bytes()[1..];
                let is_match = |bytes| glob.is_match(Path::new(OsStr::from_bytes(bytes)));
                // `dir/**` is about all that is in it, and so about the directory.
                is_match(below_root) || is_dir && is_match(&[below_root, b"/"].concat())
            }
        }
    }

    /// Whether it matches a directory with all that is in it.
    pub fn covers(&self, dir: &MergedPath) -> bool {
        self.as_path().is_some_and(|own| dir.is_within(own))
    }

    /// Whether it may match some things below a directory and others not.
    pub fn may_split(&self, dir: &MergedPath) -> bool {
        match &self.matcher {
            Matcher::Path(own) => own.is_within(dir) && own != dir,
            Matcher::Glob(_) => true,
        }
    }
}

/// Splits the magic signature from the pattern.
fn magic(text: &[u8]) -> Result<(Magic, &[u8])> {
    let mut magic = Magic::default();
    let Some(rest) = text.strip_prefix(b":") else { return Ok((magic, text)) };
    if let Some(long) = rest.strip_prefix(b"(") {
        let Some(end) = long.iter().position(|&byte| byte == b')') else {
            return Err(invalid(text, "the ) after its magic words is missing"));
        };
        for word in long[..end].split(|&byte| byte == b',') {
            match word {
                b"top" => magic.is_top = true,
                b"exclude" => magic.is_exclude = true,
                b"literal" => magic.is_literal = true,
                b"glob" => magic.is_strict_glob = true,
                b"icase" => magic.ignores_case = true,
                b"" => {}
                _ => {
                    return Err(invalid(
                        text,
                        "the magic words are top, exclude, literal, glob and icase",
                    ));
                }
            }
        }
        if magic.is_literal && magic.is_strict_glob {
            return Err(invalid(text, "literal and glob exclude each other"));
        }
        return Ok((magic, &long[end + 1..]));
    }
    let mut rest = rest;
    loop {
        match rest.split_first() {
            Some((b'/', more)) => (magic.is_top, rest) = (true, more),
            Some((b'!' | b'^', more)) => (magic.is_exclude, rest) = (true, more),
            Some((b':', more)) => return Ok((magic, more)),
            _ => return Ok((magic, rest)),
        }
    }
}

/// The path of a text, from the root or the directory `from`; `None` where there is no such path
/// in the tree.
fn resolved(text: &[u8], from: &MergedPath) -> Option<MergedPath> {
    let mut path = if text.starts_with(b"/") { MergedPath::root() } else { from.clone() };
    for name in text.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if path == MergedPath::root() => return None,
            b".." => path = path.parent(),
            name => path = path.join(&Name::new(name).ok()?),
        }
    }
    Some(path)
}

/// Compiles a glob over whole paths without the slash at their beginning.
fn glob(pattern: &[u8], from: &MergedPath, magic: Magic) -> Result<GlobMatcher> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if !pattern.starts_with(b"/") {
        parts.extend(from.names().map(|name| literal(name.as_bytes())));
    }
    for part in pattern.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or_else(|| outside(pattern))?),
            part => parts.push(without_braces(part)),
        }
    }
    let text = String::from_utf8(parts.join(&b'/'))
        .map_err(|_| invalid(pattern, "a glob has to be UTF-8"))?;
    let glob = GlobBuilder::new(&text)
        .literal_separator(magic.is_strict_glob)
        .backslash_escape(true)
        .case_insensitive(magic.ignores_case)
        .build();
    let glob = glob.map_err(|error| invalid(pattern, &error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

/// A name as a glob that matches only it.
fn literal(name: &[u8]) -> Vec<u8> {
    let special = |byte: u8| b"*?[]{}\\".contains(&byte);
    name.iter().flat_map(|&b| special(b).then_some(b'\\').into_iter().chain([b])).collect()
}

/// A part of a glob with its braces escaped, which git takes as they are.
fn without_braces(part: &[u8]) -> Vec<u8> {
    let (mut text, mut in_class, mut is_escaped) = (Vec::new(), false, false);
    for &byte in part {
        if matches!(byte, b'{' | b'}') && !in_class && !is_escaped {
            text.push(b'\\');
        }
        in_class = !is_escaped && (byte == b'[' || in_class && byte != b']');
        is_escaped = byte == b'\\' && !is_escaped;
        text.push(byte);
    }
    text
}

fn invalid(text: &[u8], why: &str) -> InspectError {
    InspectError::Invalid { what: format!("{}: {why}", String::from_utf8_lossy(text)) }
}

fn outside(text: &[u8]) -> InspectError {
    invalid(text, "not a path in the session's tree")
}

fn unknown(path: &MergedPath, current: &MergedPath) -> InspectError {
    let hint = match *current == MergedPath::root() {
        true => "paths are those in the mount; `acetate diff` lists what changed",
        false => {
            "relative paths begin at the current directory, which is in the tree; a / before \
             them stands for its root"
        }
    };
    InspectError::Refused { what: format!("{}: nothing is there", path.display()), hint }
}
