//! The rules of docs/SCHEMA.md, and which of them acetate tolerates.

/// All rules, in the order of docs/SCHEMA.md. C3 needs the base, so a caller that has the base
/// checks it.
pub const RULES: &[&str] = &[
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "D1", "D2", "D3", "D4", "D5",
    "D6", "D7", "W1", "W2", "W3", "M1", "M2", "M3", "M4", "M5", "M6", "M7", "O1", "O2", "O3", "C1",
    "C2", "C3", "R1", "L1", "K1", "K2", "T1",
];

/// Rules that another implementation may break. acetate ignores such violations, or repairs them
/// when it writes; they hide nothing of the user's that was visible before.
const TOLERATED: &[&str] = &[
    "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "D1", "D2", "D3", "D4", "D5", "D7",
    "W2", "M2", "O1",
];

/// Whether a violation is only a note, in a file that another implementation wrote to.
pub(super) fn is_tolerated(rule: &str) -> bool {
    TOLERATED.contains(&rule)
}
