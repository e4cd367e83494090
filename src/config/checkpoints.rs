//! `checkpoints`: which checkpoints a server makes by itself.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;

use super::error::Result;
use super::limits::{DEFAULT_IDLE_GAP, MAX_IDLE_GAP, MIN_IDLE_GAP};
use super::written::SourceText;

/// `checkpoints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointsConfig {
    /// None, also not before commands.
    Off,
    /// Those that commands ask for before they begin.
    #[default]
    Tools,
    /// These, and one after changes that were followed by no other for this long.
    Idle(Duration),
}

/// What an error says was expected.
const EXPECTED: &str = "expected off, tools, idle, or idle:SECONDS with 1 to 3600";

impl FromStr for CheckpointsConfig {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match (text, text.strip_prefix("idle:")) {
            ("off", _) => Ok(Self::Off),
            ("tools", _) => Ok(Self::Tools),
            ("idle", _) => Ok(Self::Idle(DEFAULT_IDLE_GAP)),
            (_, Some(gap)) => {
                let gap = gap.parse().map(Duration::from_secs).map_err(|_| EXPECTED)?;
                let fits = (MIN_IDLE_GAP..=MAX_IDLE_GAP).contains(&gap);
                if fits { Ok(Self::Idle(gap)) } else { Err(EXPECTED) }
            }
            _ => Err(EXPECTED),
        }
    }
}

impl fmt::Display for CheckpointsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tools => f.write_str("tools"),
            Self::Idle(gap) => write!(f, "idle:{}", gap.as_secs()),
        }
    }
}

/// Checks `checkpoints`.
pub(super) fn check(
    source: &SourceText<'_>,
    written: Option<&Spanned<String>>,
) -> Result<Option<CheckpointsConfig>> {
    let Some(text) = written else { return Ok(None) };
    let parsed = text.get_ref().parse();
    parsed.map(Some).map_err(|why| source.wrong(&text.span(), format_args!("checkpoints: {why}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::CheckpointsConfig::{self, Idle, Off, Tools};

    #[test]
    fn which_checkpoints_are_made_is_read_and_written() {
        let idle = |secs| Some(Idle(Duration::from_secs(secs)));
        for (text, expected) in [
            ("off", Some(Off)),
            ("tools", Some(Tools)),
            ("idle", idle(2)),
            ("idle:1", idle(1)),
            ("idle:3600", idle(3600)),
            ("idle:0", None),
            ("idle:3601", None),
            ("idle:", None),
            ("idle:-1", None),
            ("idle:1.5", None),
            ("idle:2s", None),
            ("Off", None),
            ("", None),
        ] {
            let parsed = text.parse::<CheckpointsConfig>().ok();
            assert_eq!(parsed, expected, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.to_string().parse(), Ok(parsed));
            }
        }
    }
}
