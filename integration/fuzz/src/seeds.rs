//! Writes the seeds of all corpora: what real calls look like to each target.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use acetate::wire::record::mark;

use crate::args::KINDS;
use crate::server;

/// Bytes of an RPC header with AUTH_SYS of no groups and no machine name.
const HEADER_BYTES: usize = 60;

/// Where the seeds are to go; then nothing is fuzzed.
const PLACE: &str = "ACETATE_FUZZ_SEEDS";

/// Writes the seeds and ends the process, if that is what it was started for.
pub fn write_if_asked() {
    if let Some(dir) = std::env::var_os(PLACE) {
        write(Path::new(&dir)).expect("seeds");
        std::process::exit(0);
    }
}

fn write(dir: &Path) -> std::io::Result<()> {
    // One record of each procedure, and one of each kind of arguments.
    let mut records = BTreeMap::new();
    for (program, procedure, record) in server::seed_records() {
        records.entry((program, procedure)).or_insert(record);
    }
    let put = |target: &str, name: String, bytes: &[u8]| {
        fs::create_dir_all(dir.join(target))?;
        fs::write(dir.join(target).join(name), bytes)
    };
    let mut stream = vec![7; 8];
    for ((program, procedure), record) in &records {
        let name = format!("seed-{program}-{procedure}");
        put("rpc", name.clone(), record)?;
        let args = &record[HEADER_BYTES..];
        let kind = match (program, procedure) {
            (100_003, procedure) => Some(KINDS[*procedure as usize].0),
            (100_005, 1) => Some("mnt"),
            (100_021, 1) => Some("test"),
            (100_021, 2) => Some("lock"),
            (100_021, 3) => Some("cancel"),
            (100_021, 4) => Some("unlock"),
            (100_021, 20) => Some("share"),
            (100_021, 23) => Some("free_all"),
            _ => None,
        };
        if let Some(kind) = kind.and_then(|kind| KINDS.iter().position(|(name, _)| *name == kind)) {
            put("args", name.clone(), &[&[kind as u8], args].concat())?;
            put("xdr", name, &[&[0, 5, 2, 1, 3, 4, 5, 5], args].concat())?;
        }
        stream.extend(mark(record.len()));
        stream.extend(record);
        if stream.len() > 600 {
            put("record", format!("seed-{program}-{procedure}"), &stream)?;
            stream.truncate(8);
        }
    }
    for (number, script) in server::seeds().iter().enumerate() {
        put("server", format!("seed-{number}"), script)?;
    }
    Ok(())
}
