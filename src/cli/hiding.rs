//! The options that hide paths of the base, and how the patterns are printed.

use super::error::CliError;
use super::text;
use crate::pattern::{Pattern, PatternSet};

/// The patterns of `--hide-secrets`. `.env*` and `*.pem` also match files without secrets:
/// `.env.example`, and certificates.
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

/// The most patterns that the line about a served session lists.
const MAX_NAMED: usize = 6;

/// `--hide` and `--hide-secrets`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Hide {
    /// Never show paths of the base like `.env`; repeatable.
    ///
    /// The session remembers it. `/conf/*.key` begins at the root; a pattern without a slash
    /// matches names in any directory. `*` and `?` stop at a slash, `**` does not. What is below a
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
    /// The patterns of the options.
    pub(super) fn patterns(&self) -> Result<PatternSet, CliError> {
        let secrets = SECRETS.iter().filter(|_| self.hide_secrets).map(|text| Pattern::new(text));
        let all = secrets.chain(self.hide.iter().cloned().map(Ok)).collect::<Result<Vec<_>, _>>();
        let set = all.and_then(PatternSet::new);
        set.map_err(|error| CliError::new(format_args!("--hide: {error}")))
    }
}

/// A suffix such as `; hides .env, /conf/*.key`; empty without patterns. Many are only counted.
pub(super) fn suffix(hidden: &PatternSet) -> String {
    let others: Vec<_> = texts(hidden).filter(|text| !SECRETS.contains(text)).collect();
    let (all, secrets) = (hidden.patterns().len(), hidden.patterns().len() - others.len());
    let listed = "(`acetate status` lists them)";
    match (secrets == SECRETS.len(), others.len()) {
        (_, 0) if secrets == 0 => String::new(),
        _ if all <= MAX_NAMED => format!("; hides {}", words(hidden)),
        (false, _) => format!("; hides {all} patterns {listed}"),
        (true, 0) => format!("; hides the {secrets} patterns of --hide-secrets {listed}"),
        (true, more) => {
            let others = match more <= MAX_NAMED {
                true => text::line(others.join(", ").as_bytes()),
                false => format!("{more} patterns"),
            };
            format!("; hides {others}, and the {secrets} patterns of --hide-secrets {listed}")
        }
    }
}

/// The patterns in one line.
pub(super) fn words(hidden: &PatternSet) -> String {
    let patterns: Vec<&str> = texts(hidden).collect();
    text::line(patterns.join(", ").as_bytes())
}

/// The patterns as the user wrote them.
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
    #[test]
    fn few_patterns_are_named_and_many_are_counted() {
        let hides = |hide_secrets, texts: &[&str]| {
            let hide = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
            suffix(&Hide { hide_secrets, hide }.patterns().unwrap())
        };
        let listed = "(`acetate status` lists them)";
        assert_eq!(hides(false, &[]), "");
        assert_eq!(hides(false, &[".env", "/conf/*.key"]), "; hides .env, /conf/*.key");
        let secrets = format!("; hides the {} patterns of --hide-secrets", SECRETS.len());
        assert_eq!(hides(true, &[]), format!("{secrets} {listed}"));
        let and_more = |others| secrets.replace("hides", &format!("hides {others}, and"));
        assert_eq!(hides(true, &["a", "b"]), format!("{} {listed}", and_more("a, b")));
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(hides(true, &many), format!("{} {listed}", and_more("7 patterns")));
        assert_eq!(hides(false, &many), format!("; hides 7 patterns {listed}"));
    }
}
