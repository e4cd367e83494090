//! Parses paths that git and acetate's commands printed.

/// Decodes a text in double quotes with C escapes, as git prints a path with special characters;
/// `None` for any other text.
pub fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    unescaped_text(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

/// Decodes the escapes that acetate's commands print; `None` if there are none, or invalid ones.
pub fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    if text.contains(&b'\\') { unescaped_text(text) } else { None }
}

fn unescaped_text(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, more) = rest.split_first()?;
        rest = more;
        match escape {
            b'a' => bytes.push(7),
            b'b' => bytes.push(8),
            b't' => bytes.push(b'\t'),
            b'n' => bytes.push(b'\n'),
            b'v' => bytes.push(11),
            b'f' => bytes.push(12),
            b'r' => bytes.push(b'\r'),
            b'"' | b'\\' | b'\'' => bytes.push(escape),
            b'0'..=b'3' => {
                let digits = [&[escape], rest.get(..2)?].concat();
                rest = &rest[2..];
                bytes.push(number(&digits, 8)?.try_into().ok()?);
            }
            b'x' => {
                bytes.push(number(rest.get(..2)?, 16)?.try_into().ok()?);
                rest = &rest[2..];
            }
            b'u' => {
                let digits = rest.strip_prefix(b"{")?;
                let end = digits.iter().position(|&byte| byte == b'}')?;
                let c = char::from_u32(number(&digits[..end], 16)?)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &digits[end + 1..];
            }
            _ => return None,
        }
    }
    Some(bytes)
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::{unescaped, unquoted};

    #[test]
    fn quoted_and_escaped_paths_are_read_back() {
        for (text, bytes) in [
            (r#""a\tb""#, Some(&b"a\tb"[..])),
            (r#""gr\303\274n\\\"""#, Some("gr\u{fc}n\\\"".as_bytes())),
            (r#""\u{202e}\xff""#, Some(b"\xe2\x80\xae\xff")),
            ("a\\tb", None),
            (r#""\q""#, None),
            (r#""\777""#, None),
        ] {
            assert_eq!(unquoted(text.as_bytes()).as_deref(), bytes, "{text}");
        }
        assert_eq!(unescaped(b"a\\n\\u{1b}").as_deref(), Some(&b"a\n\x1b"[..]));
        assert_eq!(unescaped(b"plain"), None);
    }
}
