//! Random numbers of the tests.

/// Numbers that are the same every time (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed * 2 + 0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }

    /// One of the few names, up to three of them deep.
    pub fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        let names: Vec<_> = (0..depth).map(|_| ["a", "b", "c", "d", "e"][self.below(5)]).collect();
        names.join("/")
    }
}
