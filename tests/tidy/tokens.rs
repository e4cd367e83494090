//! Rust text as words and signs, without comments, literals and test code: enough to see what
//! a file names. And the other way round: its comments and strings.

/// A word or a sign, and the line that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// A name or keyword, one sign, or `""` for a literal.
    pub text: String,
    /// From 1.
    pub line: usize,
}

impl Token {
    /// Whether this is a name or a keyword.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Splits `text` into tokens.
pub fn tokens(text: &str) -> Vec<Token> {
    scanned(text).found
}

/// The comments and strings of `text`, with their signs.
pub fn prose(text: &str) -> Vec<Token> {
    scanned(text).prose
}

fn scanned(text: &str) -> Scanner<'_> {
    let mut scanner = Scanner { rest: text, line: 1, found: Vec::new(), prose: Vec::new() };
    while scanner.step() {}
    scanner
}

/// As [`tokens`], but without items under `#[cfg(test)]`.
pub fn library_tokens(text: &str) -> Vec<Token> {
    let all = tokens(text);
    let mut kept = Vec::new();
    let mut at = 0;
    while at < all.len() {
        if is_run(&all[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at = item_end(&all, at);
        } else {
            kept.push(all[at].clone());
            at += 1;
        }
    }
    kept
}

/// Whether `tokens` begins with exactly these texts.
pub fn is_run(tokens: &[Token], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(t, text)| t.text == *text)
}

/// The position behind the bracket that closes the one at `open`.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The position behind the item that begins at `at` with its attributes.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while is_run(&tokens[at..], &["#", "["]) {
        at = closing(tokens, at + 1);
    }
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "{" => return closing(tokens, at),
            "(" | "[" => at = closing(tokens, at),
            _ => at += 1,
        }
    }
    at
}

struct Scanner<'t> {
    rest: &'t str,
    line: usize,
    found: Vec<Token>,
    prose: Vec<Token>,
}

impl Scanner<'_> {
    /// Takes one token, comment or space; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.take_prose(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.take_prose(block_comment(self.rest));
        } else if let Some(length) = string(self.rest).or_else(|| character(self.rest)) {
            self.push("");
            self.take_prose(length);
        } else if first == '\'' {
            // A lifetime: its name is no name of anything else.
            self.take(1);
            self.take(word(self.rest));
        } else if first.is_ascii_digit() {
            self.push("");
            self.take(word(self.rest));
        } else {
            let length = word(self.rest).max(first.len_utf8());
            let text = self.rest[..length].to_owned();
            self.push(&text);
            self.take(length);
        }
        true
    }

    fn push(&mut self, text: &str) {
        self.found.push(Token { text: text.to_owned(), line: self.line });
    }

    fn take_prose(&mut self, length: usize) {
        self.prose.push(Token { text: self.rest[..length].to_owned(), line: self.line });
        self.take(length);
    }

    fn take(&mut self, length: usize) {
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

/// Bytes of the word at the beginning.
fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Bytes of the comment at the beginning; comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Bytes of the string at the beginning, of whatever kind.
fn string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|p| {
        let rest = text.strip_prefix(p);
        rest.is_some_and(|rest| {
            let hashes = if p.ends_with('r') { rest.trim_start_matches('#') } else { rest };
            hashes.starts_with('"')
        })
    })?;
    let body = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.find('"')?;
        let end = format!("\"{}", &body[..hashes]);
        let length = body[hashes + 1..].find(&end).map(|at| hashes + 1 + at + end.len());
        return Some(prefix.len() + length.unwrap_or(body.len()));
    }
    let mut bytes = body.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// Bytes of the character literal at the beginning; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix("b'").or_else(|| text.strip_prefix('\''))?;
    let opening = text.len() - body.len();
    let first = body.chars().next()?;
    let length = if first == '\\' { 2 + body[2..].find('\'')? } else { first.len_utf8() };
    body[length..].starts_with('\'').then_some(opening + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tokens: &[Token]) -> Vec<&str> {
        tokens.iter().map(|t| t.text.as_str()).collect()
    }

    #[test]
    fn comments_and_literals_hide_what_is_in_them() {
        let text = r##"a /* x /* y */ z */ b // c
            "d \" e" r#"f " g"# b"h" 'i' '\'' b'\x00' '"' &'j k 0x1f c"l" r"m\""##;
        let found = tokens(text);
        assert_eq!(texts(&found), ["a", "b", "", "", "", "", "", "", "", "&", "k", "", "", ""]);
        assert_eq!((found[1].line, found[2].line), (1, 2));
    }

    #[test]
    fn test_items_are_left_out_and_nothing_else() {
        let text = "fn a() {} #[cfg(test)] #[path = \"x\"] mod t { fn b() { [0; 1] } } fn c();
            #[cfg(test)] use d::e; fn f() {} #[cfg(unix)] fn g() {}";
        let words: Vec<_> = library_tokens(text).into_iter().filter(Token::is_word).collect();
        assert_eq!(texts(&words), ["fn", "a", "fn", "c", "fn", "f", "cfg", "unix", "fn", "g"]);
    }
}
