//! The steps of a merge as the content of a request: a line of JSON for each, followed by the data
//! that it writes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::content::{ContentPart, ContentSource};
use super::refusal::Refusal;
use super::request::{AttrChanges, PathText};
use crate::delta::MergedPath;
use crate::overlay::{ChangeStep, ChangeSteps};
use crate::system_error::words;
use crate::vfs::{Device, NewNode, SetAttr};

/// The most bytes that one step writes.
pub const MAX_STEP_BYTES: usize = 1 << 20;

/// The longest line, in bytes: two paths and a symbolic link's target, with escapes.
const MAX_LINE_BYTES: u64 = 128 << 10;

/// A step, without its data.
#[derive(Debug, Serialize, Deserialize)]
enum StepText {
    File(PathText),
    Directory(PathText),
    Symlink(PathText, PathText),
    Fifo(PathText),
    Socket(PathText),
    Character(PathText, u32, u32),
    Block(PathText, u32, u32),
    Link(PathText, PathText),
    Rename(PathText, PathText),
    Remove(PathText),
    Write(PathText, u64, usize),
    Size(PathText, u64),
    Set(PathText, AttrChanges),
}

impl StepText {
    fn of(step: &ChangeStep) -> Self {
        let device = |device: &Device| (device.major, device.minor);
        match step {
            ChangeStep::MakeFile(path) => Self::File(path.into()),
            ChangeStep::MakeNode(path, node) => {
                let path = path.into();
                match node {
                    NewNode::Directory => Self::Directory(path),
                    NewNode::Symlink(target) => Self::Symlink(path, target.as_ref().into()),
                    NewNode::Fifo => Self::Fifo(path),
                    NewNode::Socket => Self::Socket(path),
                    NewNode::Character(rdev) => {
                        let (major, minor) = device(rdev);
                        Self::Character(path, major, minor)
                    }
                    NewNode::Block(rdev) => {
                        let (major, minor) = device(rdev);
                        Self::Block(path, major, minor)
                    }
                }
            }
            ChangeStep::Link(from, to) => Self::Link(from.into(), to.into()),
            ChangeStep::Rename(from, to) => Self::Rename(from.into(), to.into()),
            ChangeStep::Remove(path) => Self::Remove(path.into()),
            ChangeStep::Write(path, offset, data) => Self::Write(path.into(), *offset, data.len()),
            ChangeStep::Set(path, SetAttr { size: Some(size), .. }) => {
                Self::Size(path.into(), *size)
            }
            ChangeStep::Set(path, set) => Self::Set(path.into(), AttrChanges::of(set)),
        }
    }

    /// The step; `data` reads the bytes that follow.
    fn to_step(&self, data: impl FnOnce(usize) -> io::Result<Bytes>) -> io::Result<ChangeStep> {
        let node = |path: &PathText, node| Ok(ChangeStep::MakeNode(merged(path)?, node));
        let device = |major: &u32, minor: &u32| Device { major: *major, minor: *minor };
        match self {
            Self::File(path) => Ok(ChangeStep::MakeFile(merged(path)?)),
            Self::Directory(path) => node(path, NewNode::Directory),
            Self::Symlink(path, target) => {
                node(path, NewNode::Symlink(Bytes::copy_from_slice(target.as_bytes())))
            }
            Self::Fifo(path) => node(path, NewNode::Fifo),
            Self::Socket(path) => node(path, NewNode::Socket),
            Self::Character(path, a, b) => node(path, NewNode::Character(device(a, b))),
            Self::Block(path, a, b) => node(path, NewNode::Block(device(a, b))),
            Self::Link(from, to) => Ok(ChangeStep::Link(merged(from)?, merged(to)?)),
            Self::Rename(from, to) => Ok(ChangeStep::Rename(merged(from)?, merged(to)?)),
            Self::Remove(path) => Ok(ChangeStep::Remove(merged(path)?)),
            Self::Write(path, offset, bytes) => {
                Ok(ChangeStep::Write(merged(path)?, *offset, data(*bytes)?))
            }
            Self::Size(path, size) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                Ok(ChangeStep::Set(merged(path)?, set))
            }
            Self::Set(path, set) => Ok(ChangeStep::Set(merged(path)?, set.set_attr())),
        }
    }
}

fn merged(path: &PathText) -> io::Result<MergedPath> {
    MergedPath::from_bytes(path.as_bytes()).ok_or_else(|| invalid("not a path"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes one step. A step sets either the size alone, or other attributes.
///
/// # Errors
/// Those of the writer.
pub fn write_step(out: &mut impl Write, step: &ChangeStep) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &StepText::of(step))?;
    out.write_all(b"\n")?;
    match step {
        ChangeStep::Write(_, _, data) => out.write_all(data),
        _ => Ok(()),
    }
}

/// Steps in a temporary file without a name.
pub(super) struct SpooledSteps(BufReader<File>);

impl SpooledSteps {
    /// Reads all content, so that no client waits for it later.
    pub async fn read(content: &mut dyn ContentSource) -> Result<Self, Refusal> {
        let failed = |error| {
            let dir = std::env::temp_dir();
            Refusal::new(format!("{}: the steps cannot be kept: {}", dir.display(), words(&error)))
        };
        let mut file = tempfile::tempfile().map_err(failed)?;
        loop {
            match content.next().await.map_err(failed)? {
                ContentPart::Data(piece) if piece.is_empty() => break,
                ContentPart::Data(piece) => file.write_all(&piece).map_err(failed)?,
                ContentPart::Hole(_) => return Err(Refusal::new("steps without a hole expected")),
            }
        }
        Ok(Self(BufReader::new(file)))
    }
}

/// The same, for several readers, one after the other.
#[derive(Clone)]
pub(super) struct SharedSteps(Arc<Mutex<SpooledSteps>>);

impl SharedSteps {
    /// As [`SpooledSteps::read`].
    pub async fn read(content: &mut dyn ContentSource) -> Result<Self, Refusal> {
        Ok(Self(Arc::new(Mutex::new(SpooledSteps::read(content).await?))))
    }
}

impl ChangeSteps for SharedSteps {
    fn restart(&mut self) -> io::Result<()> {
        self.0.lock().restart()
    }

    fn next(&mut self) -> io::Result<Option<ChangeStep>> {
        self.0.lock().next()
    }
}

impl ChangeSteps for SpooledSteps {
    fn restart(&mut self) -> io::Result<()> {
        self.0.rewind()
    }

    fn next(&mut self) -> io::Result<Option<ChangeStep>> {
        let mut line = Vec::new();
        (&mut self.0).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let text: StepText = serde_json::from_slice(&line)?;
        let read = |bytes: usize| {
            if bytes > MAX_STEP_BYTES {
                return Err(invalid("a step with too much data"));
            }
            let mut data = vec![0; bytes];
            self.0.read_exact(&mut data)?;
            Ok(data.into())
        };
        text.to_step(read).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::content::Reading;
    use crate::vfs::{SetTime, Time};

    #[test]
    fn steps_are_read_as_they_were_written() {
        let path = |text: &str| MergedPath::from_bytes(text.as_bytes()).unwrap();
        let mtime = SetTime::To(Time { secs: -1, nanos: 5 });
        let odd = MergedPath::from_bytes(b"/a\n\"\xff").unwrap();
        let rdev = Device { major: 8, minor: 1 };
        let steps = [
            ChangeStep::MakeFile(odd.clone()),
            ChangeStep::Write(odd, 7, Bytes::from_static(b"\n{}\n")),
            ChangeStep::MakeNode(path("/s"), NewNode::Symlink(Bytes::from_static(b"\xff\n"))),
            ChangeStep::MakeNode(path("/b"), NewNode::Block(rdev)),
            ChangeStep::Link(path("/a"), path("/c")),
            ChangeStep::Rename(path("/a"), path("/d")),
            ChangeStep::Remove(path("/c")),
            ChangeStep::Set(path("/d"), SetAttr { size: Some(3), ..SetAttr::default() }),
            ChangeStep::Set(path("/d"), SetAttr { mode: Some(0o640), mtime, ..SetAttr::default() }),
        ];
        let mut text = Vec::new();
        steps.iter().try_for_each(|step| write_step(&mut text, step)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut content = Reading::stream(&text[..]);
        let mut spooled = runtime.block_on(SpooledSteps::read(&mut content)).unwrap();
        for _ in 0..2 {
            spooled.restart().unwrap();
            for step in &steps {
                assert_eq!(spooled.next().unwrap().as_ref(), Some(step));
            }
            assert_eq!(spooled.next().unwrap(), None);
        }
    }
}
