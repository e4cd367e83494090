#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| acetate_fuzz::record::check(data));
