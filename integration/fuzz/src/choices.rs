//! Decisions that are read off the fuzzer's bytes, one after another; zeros once they are used up.

/// Numbers that are likely to be wrong somewhere.
const EDGES: [u64; 12] = [
    0,
    1,
    4095,
    4096,
    4097,
    65_536,
    1 << 20,
    (1 << 20) + 1,
    u32::MAX as u64,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX,
];

/// What is left of the bytes.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// A small number, mostly; else one at some edge, or any.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=0x7f => small.into(),
            edge @ 0x80..=0xef => EDGES[usize::from(edge) % EDGES.len()],
            _ => self.long(),
        }
    }

    pub fn number32(&mut self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    /// At most so many bytes as they are.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
