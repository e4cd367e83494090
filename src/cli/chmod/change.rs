//! Parses and applies a mode of chmod(1).

use super::super::text::parse_mode;

/// A change of permissions: clauses that are applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModeChange(Vec<Clause>);

/// One clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clause {
    /// Replaces the mode. A directory keeps the bits of `kept`.
    Octal { bits: u32, kept: u32 },
    /// `who` is a mask of the bits that may change.
    Symbolic { who: u32, how: char, bits: Bits },
}

/// The permissions of a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    /// Fixed bits for all of `who`. `x_if` adds execute permission for directories and for objects
    /// that already have it for any class.
    Named { bits: u32, x_if: bool },
    /// The bits of another class; the number is the shift to them.
    CopyOf(u32),
}

impl ModeChange {
    /// Parses a mode such as `755`, `u+x`, or `go=rX,a-w`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected an octal number, or changes such as u+x or go=rX".to_owned();
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = parse_mode(text)?;
            // As in chmod(1), only a number of five digits or more clears set-ID bits.
            let kept = if text.len() < 5 { 0o6000 } else { 0 };
            return Ok(Self(vec![Clause::Octal { bits, kept }]));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            let first = part.find(['+', '-', '=']).ok_or_else(expected)?;
            let who = part[..first].chars().try_fold(0, |who, class| {
                Some(
                    who | match class {
                        'u' => 0o4700,
                        'g' => 0o2070,
                        'o' => 0o1007,
                        'a' => 0o7777,
                        _ => return None,
                    },
                )
            });
            let who = who.ok_or_else(expected)?;
            let who = if who == 0 { 0o7777 } else { who };
            let mut rest = &part[first..];
            while let Some(how) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
                let bits = bits(&rest[1..end]).ok_or_else(expected)?;
                clauses.push(Clause::Symbolic { who, how, bits });
                rest = &rest[end..];
            }
        }
        Ok(Self(clauses))
    }

    /// The new mode of an object with this mode.
    pub(super) fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        self.0.iter().fold(mode, |mode, clause| match *clause {
            Clause::Octal { bits, kept } => bits | if is_dir { mode & kept } else { 0 },
            Clause::Symbolic { who, how, bits } => {
                let bits = who & bits.of(mode, is_dir);
                match how {
                    '+' => mode | bits,
                    '-' => mode & !bits,
                    // As in chmod(1), a directory keeps set-ID bits that are not named.
                    _ => mode & !(who & if is_dir { 0o1777 } else { 0o7777 }) | bits,
                }
            }
        })
    }
}

impl Bits {
    fn of(self, mode: u32, is_dir: bool) -> u32 {
        match self {
            Self::CopyOf(shift) => (mode >> shift & 7) * 0o111,
            Self::Named { bits, x_if } => {
                bits | if x_if && (is_dir || mode & 0o111 != 0) { 0o111 } else { 0 }
            }
        }
    }
}

fn bits(text: &str) -> Option<Bits> {
    match text {
        "u" => return Some(Bits::CopyOf(6)),
        "g" => return Some(Bits::CopyOf(3)),
        "o" => return Some(Bits::CopyOf(0)),
        _ => {}
    }
    let (mut bits, mut x_if) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => x_if = true,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some(Bits::Named { bits, x_if })
}

#[cfg(test)]
mod tests {
    use super::ModeChange;

    #[test]
    fn changes_are_those_of_chmod() {
        for (text, mode, is_dir, becomes) in [
            ("755", 0o644, false, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("a-w", 0o666, false, 0o444),
            ("go=", 0o777, false, 0o700),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o600, true, 0o755),
            ("a+X", 0o744, false, 0o755),
            ("g=u", 0o750, false, 0o770),
            ("o=g-w", 0o770, false, 0o775),
            ("u+s,+t", 0o755, false, 0o5755),
            ("ug+s", 0o755, false, 0o6755),
            ("u-rwx", 0o755, false, 0o055),
            ("go=rx", 0o2777, true, 0o2755),
            ("755", 0o2700, true, 0o2755),
            ("0755", 0o6700, true, 0o6755),
            ("4755", 0o2700, true, 0o6755),
            ("00755", 0o2700, true, 0o755),
            ("755", 0o7700, true, 0o6755),
            ("755", 0o6700, false, 0o755),
        ] {
            let change = ModeChange::parse(text).unwrap();
            let applied = change.apply(mode, is_dir);
            assert_eq!(applied, becomes, "{text} on {mode:o}: {applied:o}");
        }
        for text in ["", "8", "77777", "x", "z+x", "u+q", "u"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
