//! The main loop of a validator process: sets its own limits, then checks content until the server
//! closes its end.

use std::collections::VecDeque;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::frame::{ValidatorReply, ValidatorRequest, read_request, write_reply};
use crate::validation::json;
use crate::validation::limits::{CHILD_NICE, KEPT_SCHEMA_BYTES};
use crate::validation::lines::{Form, Text};
use crate::validation::schema::CompiledSchema;
use crate::validation::violation::Violation;

/// Reads requests from `input` and writes replies to `output`, until `input` ends.
///
/// `memory` limits the address space of this process, in bytes; `time` limits the CPU time of each
/// check. Beyond either, the process dies by SIGABRT, SIGSEGV or SIGXCPU. SIGXCPU also ends it if
/// the server that should have killed it has died.
///
/// # Errors
/// A limit cannot be set, or a request is malformed.
pub fn serve_validator(
    memory: u64,
    time: Duration,
    input: impl Read,
    mut output: impl Write,
) -> io::Result<()> {
    limit(memory)?;
    let mut input = BufReader::new(input);
    let mut schemas = Schemas::default();
    while let Some(request) = read_request(&mut input)? {
        let ValidatorRequest::Check(id, form, content) = request else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a schema without a check"));
        };
        limit_time(time)?;
        if !schemas.has(id) {
            write_reply(&mut output, &ValidatorReply::WantsSchema)?;
            let Some(ValidatorRequest::Schema(text)) = read_request(&mut input)? else {
                return Err(io::Error::new(ErrorKind::InvalidData, "no schema came"));
            };
            schemas.add(id, &text)?;
        }
        check(schemas.get(id)?, form, &content, &mut output)?;
    }
    Ok(())
}

/// Checks content and replies. The rejection is sent first: finding its reason may exceed the time
/// limit.
fn check(
    schema: &CompiledSchema,
    form: Form,
    content: &[u8],
    output: &mut impl Write,
) -> io::Result<()> {
    for Text { line, bytes } in form.texts(content) {
        let value = match bytes.and_then(json::value) {
            Ok(value) if schema.is_valid(&value) => continue,
            Ok(value) => value,
            Err(fault) => {
                let fault = fault.in_line(line);
                write_reply(output, &ValidatorReply::Refused(fault.line))?;
                return write_reply(output, &ValidatorReply::Reason(fault));
            }
        };
        write_reply(output, &ValidatorReply::Refused(line))?;
        let fault = schema.fault(&value).unwrap_or_else(|| Violation::new("is not valid"));
        return write_reply(output, &ValidatorReply::Reason(fault.in_line(line)));
    }
    write_reply(output, &ValidatorReply::Accepted)
}

/// LRU cache of compiled schemas; the last one was used most recently.
#[derive(Default)]
struct Schemas(VecDeque<KeptSchema>);

struct KeptSchema {
    id: u64,
    /// Length of the schema's text, in bytes.
    bytes: usize,
    compiled: CompiledSchema,
}

impl Schemas {
    /// Whether a schema is cached; marks it as most recently used.
    fn has(&mut self, id: u64) -> bool {
        let Some(at) = self.0.iter().position(|kept| kept.id == id) else { return false };
        if let Some(kept) = self.0.remove(at) {
            self.0.push_back(kept);
        }
        true
    }

    /// Compiles and caches a schema; evicts the least recently used ones beyond
    /// [`KEPT_SCHEMA_BYTES`].
    fn add(&mut self, id: u64, text: &[u8]) -> io::Result<()> {
        while self.0.iter().map(|kept| kept.bytes).sum::<usize>() + text.len() > KEPT_SCHEMA_BYTES
            && self.0.pop_front().is_some()
        {}
        let odd = |fault: Violation| io::Error::new(ErrorKind::InvalidData, fault.to_string());
        let value = json::value(text).map_err(odd)?;
        let compiled = CompiledSchema::new(&value).map_err(odd)?;
        self.0.push_back(KeptSchema { id, bytes: text.len(), compiled });
        Ok(())
    }

    fn get(&self, id: u64) -> io::Result<&CompiledSchema> {
        let last = self.0.back().filter(|kept| kept.id == id).map(|kept| &kept.compiled);
        last.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a schema is missing"))
    }
}

/// Sets the permanent limits of this process.
fn limit(memory: u64) -> io::Result<()> {
    // No core dumps: they would contain clients' data.
    set(Resource::Core, 0)?;
    // macOS accepts this limit without enforcing it; there, wall-clock and CPU time bound a check.
    match set(Resource::As, memory) {
        Err(error) if cfg!(target_os = "linux") => return Err(error),
        _ => {}
    }
    // The threads of the server have priority.
    nice(CHILD_NICE)?;
    Ok(())
}

/// Grants this process `time` more CPU time, rounded up to seconds.
fn limit_time(time: Duration) -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    let secs = used.saturating_add(1).saturating_add(time.as_secs_f64().ceil() as u64);
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let current = Some(maximum.map_or(secs, |maximum| maximum.min(secs)));
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

/// Sets a limit, unless the current one is lower.
fn set(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?)
}
