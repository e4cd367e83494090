//! The rules of docs/SCHEMA.md, and which of them acetate can live without.

/// The numbers of all rules, in the order of docs/SCHEMA.md. C3 is about the base, and checked by
/// whoever has it.
pub const RULES: &[&str] = &[
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "D1", "D2", "D3", "D4", "D5",
    "D6", "D7", "W1", "W2", "W3", "M1", "M2", "M3", "M4", "M5", "M6", "M7", "O1", "O2", "O3", "C1",
    "C2", "C3", "R1", "L1",
];

/// Those that another implementation may break, and that acetate passes over or mends when it
/// writes: nothing of the user's is hidden by it that was not before.
const TOLERATED: &[&str] = &[
    "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "D1", "D2", "D3", "D4", "D5", "D7",
    "W2", "M2", "O1",
];

/// Whether what breaks the rule is only noted, in a file that another implementation wrote to.
pub(super) fn is_tolerated(rule: &str) -> bool {
    TOLERATED.contains(&rule)
}
