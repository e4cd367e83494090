//! The token of clients that may change exports.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::limits::{MAX_TOKEN_BYTES, MIN_TOKEN_BYTES};

/// The token of clients that may change exports. It is a secret.
pub struct AdminToken(String);

impl AdminToken {
    /// Reads the token from a file that only its owner may read.
    ///
    /// # Errors
    /// The file cannot be read, other users may read it, or it has no token.
    pub fn read(file: &Path) -> io::Result<Self> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !std::fs::metadata(file)?.is_file() {
            return wrong("not a regular file");
        }
        let opened = File::open(file)?;
        if opened.metadata()?.permissions().mode() & 0o077 != 0 {
            return wrong("other users than its owner may read or write it");
        }
        let mut text = String::new();
        opened.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text)?;
        let token = text.trim();
        let is_fit = text.len() as u64 <= MAX_TOKEN_BYTES && token.len() >= MIN_TOKEN_BYTES;
        if !is_fit || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("a token has 16 to 4096 visible ASCII characters");
        }
        Ok(Self(token.to_owned()))
    }

    /// Whether a text is the token. Takes the same time for all texts of one length.
    pub(super) fn is_equal(&self, text: &str) -> bool {
        let pairs = self.0.bytes().zip(text.bytes());
        let differing = pairs.fold(0, |differing, (one, other)| black_box(differing | one ^ other));
        self.0.len() == text.len() && differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::AdminToken;

    #[test]
    fn only_the_token_is_equal() {
        let token = AdminToken("0123456789abcdef".to_owned());
        assert!(token.is_equal("0123456789abcdef"));
        for other in
            ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef0", "1123456789abcdef"]
        {
            assert!(!token.is_equal(other), "{other}");
        }
    }
}
