//! Escapes texts of other programs and users, so that they cannot control a terminal.

use std::borrow::Cow;

/// Whether a character controls a terminal, changes the order of characters, or is invisible:
/// controls (C0, DEL, C1), line and paragraph separators, bidirectional controls (UAX #9), other
/// format characters (category Cf), and fillers. The joiners U+200C and U+200D are not: words and
/// emoji need them.
fn is_control_like(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
        || matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}')
        || matches!(c, '\u{3164}' | '\u{ffa0}')
}

/// Escapes a line for a terminal, except its tabs.
pub(crate) fn printable(line: &str) -> Cow<'_, str> {
    let is_escaped = |c| is_control_like(c) && c != '\t';
    if !line.contains(is_escaped) {
        return Cow::Borrowed(line);
    }
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        match is_escaped(c) {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// Escapes JSON as `\u` and four digits (RFC 8259, section 7); only strings can contain the escaped
/// characters. Line feeds between values stay.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c| is_control_like(c) && c != '\n';
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_escaped(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// Escapes a name or path: control characters, backslashes, and bytes that are not UTF-8.
pub(crate) fn name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if is_control_like(c) => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Escapes a text for one line, like [`name`], but leaves backslashes.
pub(crate) fn line(bytes: &[u8]) -> String {
    let escape = |part: &str| name(part.as_bytes());
    String::from_utf8_lossy(bytes).split('\\').map(escape).collect::<Vec<_>>().join("\\")
}

#[cfg(test)]
mod tests {
    use super::{name, printable, printable_json};

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(name(b"a b\\c\n\x1b[2J\xff\xc3\xa9"), "a b\\\\c\\n\\u{1b}[2J\\xffé");
    }

    /// A character of each range that is escaped.
    const CONTROL_CHARS: [(char, &str); 19] = [
        ('\u{7}', "0007"),
        ('\u{1b}', "001b"),
        ('\u{7f}', "007f"),
        ('\u{85}', "0085"),
        ('\u{9b}', "009b"),
        ('\u{61c}', "061c"),
        ('\u{200e}', "200e"),
        ('\u{2028}', "2028"),
        ('\u{202a}', "202a"),
        ('\u{202e}', "202e"),
        ('\u{2066}', "2066"),
        ('\u{2069}', "2069"),
        ('\u{ad}', "00ad"),
        ('\u{200b}', "200b"),
        ('\u{2060}', "2060"),
        ('\u{3164}', "3164"),
        ('\u{feff}', "feff"),
        ('\u{fffa}', "fffa"),
        ('\u{e0041}', "db40\\udc41"),
    ];

    #[test]
    fn what_turns_text_around_is_escaped_in_names_lines_and_json() {
        for (c, hex) in CONTROL_CHARS {
            let text = format!("a{c}b");
            let escaped = format!("a{}b", c.escape_default());
            assert_eq!(name(text.as_bytes()), escaped);
            assert_eq!(printable(&text), escaped);
            let json = serde_json::Value::from(text.as_str()).to_string();
            let printed = printable_json(&json);
            assert_eq!(printed, format!("\"a\\u{hex}b\""));
            assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), text);
        }
        assert_eq!(printable("a\tb\nc"), "a\tb\\nc");
        // Joiners, and letters of right-to-left scripts, are plain text.
        let plain = "\u{5d0}\u{200d}\u{e9}";
        assert_eq!((name(plain.as_bytes()).as_str(), &*printable(plain)), (plain, plain));
    }
}
