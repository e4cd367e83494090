#![no_main]

use acetate_fuzz::{seeds, server};

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked(), |data: &[u8]| server::check(data));
