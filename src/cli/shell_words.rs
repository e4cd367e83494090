//! Command lines that a user can copy to a shell.

/// The command line of this process, with sudo.
pub(super) fn as_root() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_unknown| "acetate".into());
    let words = std::env::args_os().skip(1);
    let words = std::iter::once(program.into_os_string()).chain(words);
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    format!("sudo {}", words.join(" "))
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_the_command_as_it_was() {
        assert_eq!(quoted("/mnt/a-b_1.db"), "/mnt/a-b_1.db");
        assert_eq!(quoted("my dir"), "'my dir'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
