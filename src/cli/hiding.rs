//! What a session never shows of its base: the options for it, and how it is printed.

use super::error::CliError;
use super::text;
use crate::vfs::{Pattern, PatternSet};

/// What `--hide-secrets` stands for. `.env*` and `*.pem` hide more than secrets: `.env.example`,
/// and certificates.
const SECRETS: [&str; 17] = [
    ".env*",
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
];

/// `--hide` and `--hide-secrets`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Hide {
    /// Never show paths of the base like `.env`; repeatable.
    ///
    /// The session remembers it. `/conf/*.key` is from the root; a pattern without a slash is one
    /// of names, in any directory. `*` and `?` stop at a slash, `**` does not. What is below a
    /// hidden directory is hidden too.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    hide: Vec<Pattern>,

    /// Hide .env*, .ssh, private keys and the like.
    ///
    /// The whole list: .env*, .ssh, .aws, .gnupg, .netrc, .npmrc, .pypirc, .git-credentials,
    /// id_rsa, id_dsa, id_ecdsa*, id_ed25519*, *.pem, *.key, *.p12, *.pfx, *.ppk.
    #[arg(long)]
    hide_secrets: bool,
}

impl Hide {
    /// The patterns that were given.
    pub(super) fn patterns(&self) -> Result<PatternSet, CliError> {
        let secrets = SECRETS.iter().filter(|_| self.hide_secrets).map(|text| Pattern::new(text));
        let all = secrets.chain(self.hide.iter().cloned().map(Ok)).collect::<Result<Vec<_>, _>>();
        let set = all.and_then(PatternSet::new);
        set.map_err(|error| CliError::new(format_args!("--hide: {error}")))
    }
}

/// `; hides .env, /conf/*.key`; nothing where nothing is hidden.
pub(super) fn suffix(hidden: &PatternSet) -> String {
    if hidden.is_empty() { String::new() } else { format!("; hides {}", words(hidden)) }
}

/// The patterns in a line.
pub(super) fn words(hidden: &PatternSet) -> String {
    let patterns: Vec<&str> = texts(hidden).collect();
    text::line(patterns.join(", ").as_bytes())
}

/// The patterns as they were written.
pub(super) fn texts(hidden: &PatternSet) -> impl Iterator<Item = &str> {
    hidden.patterns().iter().map(Pattern::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secrets_are_patterns_and_the_help_names_each() {
        let hide = Hide { hide_secrets: true, ..Hide::default() };
        assert_eq!(hide.patterns().unwrap().patterns().len(), SECRETS.len());
        let command = <Hide as clap::Args>::augment_args(clap::Command::new("x"));
        let help = command.clone().render_long_help().to_string();
        let said: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("The whole list: {}.", SECRETS.join(", "))), "{said}");
    }
}
