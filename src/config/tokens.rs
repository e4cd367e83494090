//! Tokens: secret parts of export paths, generated once and stored beside the exports file.
//!
//! The file is `EXPORTS.toml.tokens`, with a line `"NAME" = "TOKEN"` for each export that ever had
//! `token = true`. After a line is removed, the next start generates a new token.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use siphasher::sip128::{Hasher128, SipHasher24};

use super::error::{ConfigError, Position, Result};
use super::limits::MAX_TOKENS_BYTES;

use crate::system_error::words;

/// Size of a token, in bytes.
const TOKEN_BYTES: usize = 16;

/// Suffix of the token file.
const SUFFIX: &str = ".tokens";

/// Suffix of the token file's replacement, before its rename.
const NEW_SUFFIX: &str = ".tokens.new";

/// The secret part of an export's path: 128 random bits as 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Generates a token.
    fn random() -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Parses a token.
    fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_token = text.len() == 2 * TOKEN_BYTES && text.bytes().all(is_digit);
        is_token.then(|| Self(text.to_owned()))
    }

    /// The token itself: a capability to mount.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The token of a path, if this token is the key: its SipHash-2-4-128.
    pub(super) fn derived(&self, path: &str) -> Self {
        let key = u128::from_str_radix(&self.0, 16).unwrap_or_default();
        let mut hasher = SipHasher24::new_with_key(&key.to_be_bytes());
        hasher.write(path.as_bytes());
        Self(format!("{:032x}", hasher.finish128().as_u128()))
    }

    /// Whether a text is this token. Takes the same time for every text that has the form of a
    /// token.
    pub(super) fn is_equal(&self, text: &str) -> bool {
        let number = |text: &str| u128::from_str_radix(text, 16).ok();
        // An integer comparison takes constant time.
        Self::parse(text).is_some() && number(&self.0) == number(text)
    }

    /// Eight hex digits of a hash: identifies the token in the audit log without revealing it.
    pub fn mark(&self) -> String {
        let mut hasher = siphasher::sip::SipHasher24::new();
        hasher.write(b"token mark");
        hasher.write(self.0.as_bytes());
        format!("{:08x}", hasher.finish() >> 32)
    }
}

/// Prints the mark only, because debug output ends up in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.mark())
    }
}

/// Tokens by the names of their exports.
pub(super) type Tokens = BTreeMap<String, Token>;

/// The token file of the exports file `file`.
pub fn tokens_file(file: &Path) -> PathBuf {
    companion_path(file, SUFFIX)
}

fn companion_path(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Reads the tokens of `file`; empty if there is no token file.
pub(super) fn read(file: &Path) -> Result<Tokens> {
    let path = tokens_file(file);
    let failed = |error: &std::io::Error| ConfigError::of_file(&path, words(error));
    let opened = match File::open(&path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Tokens::new()),
        Err(error) => return Err(failed(&error)),
    };
    let meta = opened.metadata().map_err(|error| failed(&error))?;
    if meta.permissions().mode() & 0o077 != 0 {
        let what = "users other than its owner can read this token file";
        let hint = format!("chmod 600 {}; and make new tokens: remove the lines", path.display());
        return Err(ConfigError::of_file(&path, what).with_hint(hint));
    }
    let mut text = String::new();
    let limited = opened.take(MAX_TOKENS_BYTES + 1).read_to_string(&mut text);
    limited.map_err(|error| failed(&error))?;
    if text.len() as u64 > MAX_TOKENS_BYTES {
        let hint = "remove the lines of exports that no longer exist";
        return Err(ConfigError::of_file(&path, "too many tokens").with_hint(hint));
    }
    parse(&path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Tokens> {
    let hint = "a line is \"NAME\" = \"TOKEN\"; without a line, another token is made";
    let lines: BTreeMap<String, toml::Spanned<String>> = toml::from_str(text).map_err(|error| {
        let fault = ConfigError::of_file(path, error.message().trim()).with_hint(hint);
        match error.span() {
            Some(span) => fault.at(Position::of(text, span.start)),
            None => fault,
        }
    })?;
    let token = |(name, written): (String, toml::Spanned<String>)| {
        let at = Position::of(text, written.span().start);
        let token = Token::parse(written.get_ref()).ok_or_else(|| {
            let what = "a token is 32 hexadecimal digits";
            ConfigError::of_file(path, what).at(at).with_hint(hint)
        })?;
        Ok((name, token))
    };
    lines.into_iter().map(token).collect()
}

/// Reads the tokens of `file`; generates those missing in `names`, and syncs them to disk.
pub(super) fn make(file: &Path, names: &[&str]) -> Result<Tokens> {
    let is_complete = |tokens: &Tokens| names.iter().all(|name| tokens.contains_key(*name));
    let tokens = read(file)?;
    if is_complete(&tokens) {
        return Ok(tokens);
    }
    // The exports file is locked during generation, so that two starting servers get the same
    // tokens.
    let failed = |error: &std::io::Error| ConfigError::of_file(&tokens_file(file), words(error));
    let lock = File::open(file).map_err(|error| failed(&error))?;
    lock.try_lock().map_err(|_| {
        let what = "another server is making tokens";
        ConfigError::of_file(file, what).with_hint("try again")
    })?;
    let mut tokens = read(file)?;
    for name in names {
        if !tokens.contains_key(*name) {
            let token = Token::random().map_err(|error| failed(&error))?;
            tokens.insert((*name).to_owned(), token);
        }
    }
    replace(file, &tokens).map_err(|error| {
        failed(&error).with_hint("the tokens are kept there: serve as a user who may write it")
    })?;
    Ok(tokens)
}

/// Gives the owner of the exports file's folder a token file that root makes: the server may run as
/// that user.
fn keep_owner(file: &Path, tokens: &File) {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let before = fs::metadata(tokens_file(file));
    let owner = before.or_else(|_| fs::metadata(folder.unwrap_or(Path::new("."))));
    if let Ok(owner) = owner {
        // Only root can; anyone else owns the file already.
        let _ = std::os::unix::fs::fchown(tokens, Some(owner.uid()), Some(owner.gid()));
    }
}

/// Replaces the token file atomically.
fn replace(file: &Path, tokens: &Tokens) -> std::io::Result<()> {
    let (path, new) = (tokens_file(file), companion_path(file, NEW_SUFFIX));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut text = String::from("# Anyone who knows a token can mount its export.\n");
    for (name, token) in tokens {
        text.push_str(&format!("\"{name}\" = \"{}\"\n", token.0));
    }
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    opened.write_all(text.as_bytes())?;
    keep_owner(file, &opened);
    opened.sync_all()?;
    fs::rename(&new, &path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
