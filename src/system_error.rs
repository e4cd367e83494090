//! Words for errors of the operating system. Messages show them without the error's number.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// An error in words: std adds the number of an error of the system.
pub(crate) fn words(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(number) = error.raw_os_error()
        && let Some(words) = text.strip_suffix(&format!(" (os error {number})"))
    {
        text.truncate(words.len());
    }
    text
}

/// How a process ended, in words.
pub(crate) fn ending_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::words;

    #[test]
    fn errors_of_the_system_have_no_number() {
        assert_eq!(words(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(words(&io::Error::other("a (os error 2)")), "a (os error 2)");
    }
}
