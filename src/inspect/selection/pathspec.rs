//! Parses one pathspec as git does (gitglossary(7), "pathspec"), with paths from the tree's root.

use globset::{Glob, GlobBuilder};

use super::quoting::{unescaped, unquoted};
use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};
use crate::inspect::opened::EMPTY_PATH;

/// Characters that make a pathspec a glob.
const SPECIAL: &[u8] = b"*?[\\";

/// One pathspec.
#[derive(Debug)]
pub(super) struct Pathspec {
    /// Whether the pathspec excludes.
    pub is_exclude: bool,
    /// The paths that it matches.
    pub matcher: Matcher,
}

#[derive(Debug)]
pub(super) enum Matcher {
    /// This path, and everything below it.
    Path(MergedPath),
    /// Every full path, without its leading slash, that one of the globs matches.
    Globs(Vec<Glob>),
}

/// The magic signature of a pathspec.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Magic {
    is_top: bool,
    is_exclude: bool,
    is_literal: bool,
    is_strict_glob: bool,
    ignores_case: bool,
}

impl Pathspec {
    /// Parses a pathspec. Relative paths start from `current`, a directory of the tree. `is_known`
    /// says whether a path has or had an object.
    ///
    /// # Errors
    /// The pathspec is invalid, leads out of the tree, or names a path without an object.
    pub fn parse(
        text: &[u8],
        current: &MergedPath,
        is_known: &dyn Fn(&MergedPath) -> Result<bool>,
    ) -> Result<Self> {
        if text.is_empty() {
            return Err(InspectError::Invalid { what: EMPTY_PATH.to_owned() });
        }
        let (magic, pattern) = magic(text)?;
        let from = if magic.is_top { &MergedPath::root() } else { current };
        let spec = |matcher| Self { is_exclude: magic.is_exclude, matcher };
        // Accepts what other commands print: quoted as git does it, or with escapes only.
        let forms = [unquoted(pattern), Some(pattern.to_vec()), unescaped(pattern)];
        let mut first = None;
        for form in forms.into_iter().flatten() {
            let Some(path) = from.resolve(&form) else { continue };
            if is_known(&path)? {
                return Ok(spec(named(path, magic)?));
            }
            first = first.or(Some(path));
        }
        let is_glob = !magic.is_literal && pattern.iter().any(|byte| SPECIAL.contains(byte));
        if is_glob {
            let mut globs = vec![glob(pattern, from, magic)?];
            // `is_known` is case-sensitive, so the name may still exist in another case.
            if let (true, Some(path)) = (magic.ignores_case, first) {
                globs.extend(in_any_case(&path, magic)?);
            }
            return Ok(spec(Matcher::Globs(globs)));
        }
        match first {
            // The object may have the name in another case.
            Some(path) if magic.ignores_case => Ok(spec(named(path, magic)?)),
            // An exclusion may name a path without an object.
            Some(path) if magic.is_exclude => Ok(spec(Matcher::Path(path))),
            Some(path) => {
                let is_from_root = *current == MergedPath::root();
                Err(InspectError::Unknown { path, is_from_root })
            }
            None => Err(outside(text)),
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

/// A matcher for a path and everything below it.
fn named(path: MergedPath, magic: Magic) -> Result<Matcher> {
    if !magic.ignores_case || path == MergedPath::root() {
        return Ok(Matcher::Path(path));
    }
    Ok(Matcher::Globs(in_any_case(&path, magic)?.into()))
}

/// Globs that match a path and everything below it in any case.
fn in_any_case(path: &MergedPath, magic: Magic) -> Result<[Glob; 2]> {
    let own = literal(&path.as_bytes()[1..]);
    let below = [&own[..], b"/**"].concat();
    Ok([parsed(own, path.as_bytes(), magic)?, parsed(below, path.as_bytes(), magic)?])
}

/// A glob over full paths without their leading slash.
fn glob(pattern: &[u8], from: &MergedPath, magic: Magic) -> Result<Glob> {
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
    parsed(parts.join(&b'/'), pattern, magic)
}

/// Compiles the glob `text`; `pattern` is for error messages.
fn parsed(text: Vec<u8>, pattern: &[u8], magic: Magic) -> Result<Glob> {
    let why = match magic.ignores_case {
        true => "a case-insensitive pathspec must be UTF-8",
        false => "a glob must be UTF-8",
    };
    let text = String::from_utf8(text).map_err(|_| invalid(pattern, why))?;
    let glob = GlobBuilder::new(&text)
        .literal_separator(magic.is_strict_glob)
        .backslash_escape(true)
        .case_insensitive(magic.ignores_case)
        .build();
    glob.map_err(|error| invalid(pattern, &error.kind().to_string()))
}

/// A glob that matches exactly this name.
fn literal(name: &[u8]) -> Vec<u8> {
    let special = |byte: u8| b"*?[]{}\\".contains(&byte);
    name.iter().flat_map(|&b| special(b).then_some(b'\\').into_iter().chain([b])).collect()
}

/// Escapes braces in a part of a glob: they are literal in git, but not in `globset`.
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
