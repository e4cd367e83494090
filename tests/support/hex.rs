//! Bytes spelled by hand.

/// Reads hexadecimal text; white space separates, `//` begins a comment.
pub fn hex(text: &str) -> Vec<u8> {
    hex_with(text, |word| panic!("not hexadecimal: {word}"))
}

/// Reads hexadecimal text, in which words in capital letters stand for bytes that `named` knows.
pub fn hex_with(text: &str, named: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words = text.lines().flat_map(|line| line.split("//").next().unwrap().split_whitespace());
    for word in words {
        if word.starts_with(|c: char| c.is_ascii_uppercase()) {
            bytes.extend(named(word));
            continue;
        }
        assert!(word.len().is_multiple_of(2), "half a byte in {word}");
        for at in (0..word.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&word[at..at + 2], 16).expect(word));
        }
    }
    bytes
}

/// The opposite of [`hex`], in groups of four bytes, for readable failures.
pub fn to_hex(bytes: &[u8]) -> String {
    let group = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(4).map(group).collect::<Vec<_>>().join(" ")
}
