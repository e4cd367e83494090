//! Writes a tar archive: ustar, with pax extended headers (POSIX.1-2001) where ustar is too small.

use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use ::tar::{Builder, EntryType, Header};

use super::super::error::{InspectError, Result};
use super::sparse::{self, Map, TarLayout};
use super::{ExportItem, ExportSink, ItemOutcome, PIECE_BYTES, write_error};
use crate::vfs::{Attr, FileKind, Time};

/// The largest numbers in the 8-byte and 12-byte fields of a ustar header: octal digits and a NUL.
const MAX_OWNER: u32 = 0o7_777_777;
const MAX_SIZE: u64 = 0o77_777_777_777;

/// The byte ranges of the name and of the link target in a header.
const NAME: std::ops::Range<usize> = 0..100;
const LINK_NAME: std::ops::Range<usize> = 157..257;

/// The pax record with the name of a sparse file.
const SPARSE_NAME: &str = "GNU.sparse.name";

/// An archive that is being written.
pub struct Tar<W: Write> {
    builder: Builder<W>,
    /// For error messages.
    path: PathBuf,
    /// Write nanoseconds, which takes an extended header for each object.
    exact_times: bool,
}

/// The records of an extended header.
type Records = Vec<(&'static str, Vec<u8>)>;

impl<W: Write> Tar<W> {
    /// Starts an archive in `out`; `path` names it in messages. Times are whole seconds.
    pub fn new(out: W, path: PathBuf) -> Self {
        Self { builder: Builder::new(out), path, exact_times: false }
    }

    /// Writes times with nanoseconds: each object with a fraction takes 1 KiB more.
    pub fn with_exact_times(self, exact_times: bool) -> Self {
        Self { exact_times, ..self }
    }

    /// The headers of an object, with size 0.
    fn entry(&self, path: &[u8], kind: EntryType, attr: &Attr) -> (Header, Records) {
        let exact = attr.mtime;
        let mtime = if self.exact_times { exact } else { Time { nanos: 0, ..exact } };
        entry(path, kind, attr, mtime)
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn finish(self) -> Result<W> {
        let Self { builder, path, .. } = self;
        builder.into_inner().map_err(|error| write_error(path, error))
    }

    fn append(
        &mut self,
        (mut header, mut records): (Header, Records),
        data: impl Read,
    ) -> Result<()> {
        // pax names are UTF-8 by definition; `hdrcharset` declares those that are not.
        if records.iter().any(|(key, value)| is_name(key) && std::str::from_utf8(value).is_err()) {
            records.insert(0, ("hdrcharset", b"BINARY".to_vec()));
        }
        header.set_cksum();
        let extended = records.iter().map(|(key, value)| (*key, value.as_slice()));
        let written = match records.is_empty() {
            true => Ok(()),
            false => self.builder.append_pax_extensions(extended),
        };
        let written = written.and_then(|()| self.builder.append(&header, data));
        written.map_err(|error| match error.downcast::<InspectError>() {
            Ok(read) => read,
            Err(error) => write_error(&self.path, error),
        })
    }
}

impl<W: Write> Tar<W> {
    fn append_sparse(&mut self, item: &ExportItem<'_>, map: Map) -> Result<()> {
        let attr = item.object.attr();
        let (mut header, more) =
            self.entry(&sparse::plain_name(item.path), EntryType::Regular, attr);
        let mut records: Records = vec![
            ("GNU.sparse.major", b"1".to_vec()),
            ("GNU.sparse.minor", b"0".to_vec()),
            (SPARSE_NAME, item.path.to_vec()),
            ("GNU.sparse.realsize", attr.size.to_string().into_bytes()),
        ];
        records.extend(more);
        put_size(&mut header, map.bytes(), &mut records);
        self.append((header, records), buffered(map.content(item), attr))
    }
}

impl<W: Write> ExportSink for Tar<W> {
    fn enter(&mut self, dir: &ExportItem<'_>) -> Result<()> {
        let mut name = if dir.path.is_empty() { b".".to_vec() } else { dir.path.to_vec() };
        name.push(b'/');
        let entry = self.entry(&name, EntryType::Directory, dir.object.attr());
        self.append(entry, io::empty())
    }

    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome> {
        let attr = item.object.attr();
        let kind = match attr.kind {
            FileKind::Regular => EntryType::Regular,
            FileKind::Symlink => EntryType::Symlink,
            FileKind::Fifo => EntryType::Fifo,
            FileKind::Character => EntryType::Char,
            FileKind::Block => EntryType::Block,
            FileKind::Socket => {
                return Ok(ItemOutcome::LeftOut("an archive cannot hold a socket".to_owned()));
            }
            FileKind::Directory => EntryType::Directory,
        };
        let (mut header, mut records) = self.entry(item.path, kind, attr);
        match attr.kind {
            FileKind::Regular => {
                if let Some(why) = item.unreadable() {
                    return Ok(ItemOutcome::LeftOut(why));
                }
                match sparse::layout(item)? {
                    TarLayout::Plain => {
                        put_size(&mut header, attr.size, &mut records);
                        self.append(
                            (header, records),
                            buffered(ExactReader { item, at: 0 }, attr),
                        )?;
                    }
                    TarLayout::Sparse(map) => self.append_sparse(item, map)?,
                    TarLayout::Refused(why) => return Ok(ItemOutcome::LeftOut(why)),
                }
            }
            FileKind::Symlink => {
                put_name(&mut header, LINK_NAME, "linkpath", &item.target()?, &mut records);
                self.append((header, records), io::empty())?;
            }
            _ => {
                put_device(&mut header, attr).map_err(|error| write_error(&self.path, error))?;
                self.append((header, records), io::empty())?;
            }
        }
        Ok(ItemOutcome::Written)
    }

    fn link(&mut self, item: &ExportItem<'_>, first: &[u8]) -> Result<()> {
        let (mut header, mut records) = self.entry(item.path, EntryType::Link, item.object.attr());
        put_name(&mut header, LINK_NAME, "linkpath", first, &mut records);
        self.append((header, records), io::empty())
    }

    fn whiteout(&mut self, path: &[u8]) -> Result<()> {
        let (mut header, mut records) = (Header::new_ustar(), Records::new());
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(0);
        put_name(&mut header, NAME, "path", path, &mut records);
        self.append((header, records), io::empty())
    }
}

/// The headers of an object with size 0 and the modification time `mtime`.
fn entry(path: &[u8], kind: EntryType, attr: &Attr, mtime: Time) -> (Header, Records) {
    let (mut header, mut records) = (Header::new_ustar(), Records::new());
    header.set_entry_type(kind);
    header.set_mode(attr.mode);
    header.set_size(0);
    put_name(&mut header, NAME, "path", path, &mut records);
    for (key, id) in [("uid", attr.uid), ("gid", attr.gid)] {
        let fits = if id <= MAX_OWNER { id } else { 0 };
        match key {
            "uid" => header.set_uid(fits.into()),
            _ => header.set_gid(fits.into()),
        }
        if fits != id {
            records.push((key, id.to_string().into_bytes()));
        }
    }
    let secs = u64::try_from(mtime.secs).ok().filter(|secs| *secs <= MAX_SIZE);
    header.set_mtime(secs.unwrap_or(0));
    if secs.is_none() || mtime.nanos != 0 {
        records.push(("mtime", decimal(mtime).into_bytes()));
    }
    (header, records)
}

/// Sets the size of an entry, in the header and, if it is too large, in a record.
fn put_size(header: &mut Header, bytes: u64, records: &mut Records) {
    header.set_size(bytes);
    if bytes > MAX_SIZE {
        records.push(("size", bytes.to_string().into_bytes()));
    }
}

fn buffered<R: Read>(content: R, attr: &Attr) -> BufReader<R> {
    let capacity = PIECE_BYTES.min(usize::try_from(attr.size).unwrap_or(usize::MAX));
    BufReader::with_capacity(capacity.max(1), content)
}

fn put_device(header: &mut Header, attr: &Attr) -> io::Result<()> {
    header.set_device_major(attr.rdev.major)?;
    header.set_device_minor(attr.rdev.minor)
}

/// Puts a name into a field of the header, cut to its length, and adds a record if it does not fit.
fn put_name(
    header: &mut Header,
    field: std::ops::Range<usize>,
    key: &'static str,
    name: &[u8],
    records: &mut Records,
) {
    let fits = name.len().min(field.len());
    header.as_mut_bytes()[field][..fits].copy_from_slice(&name[..fits]);
    if fits < name.len() {
        records.push((key, name.to_vec()));
    }
}

fn is_name(key: &str) -> bool {
    matches!(key, "path" | "linkpath" | SPARSE_NAME)
}

/// Seconds with a fraction. Before 1970, both parts are negative.
fn decimal(time: Time) -> String {
    let whole = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let sign = if whole < 0 { "-" } else { "" };
    let whole = whole.unsigned_abs();
    format!("{sign}{}.{:09}", whole / 1_000_000_000, whole % 1_000_000_000)
}

/// Reads exactly as many bytes as the size of the file.
struct ExactReader<'a> {
    item: &'a ExportItem<'a>,
    at: u64,
}

impl Read for ExactReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.item.object.attr().size - self.at;
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if length > 0 {
            self.item.read(self.at, &mut buffer[..length]).map_err(io::Error::other)?;
        }
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::{Time, decimal};

    #[test]
    fn times_before_1970_count_down() {
        for (secs, nanos, text) in [
            (1, 20, "1.000000020"),
            (-1, 0, "-1.000000000"),
            (-1, 900_000_000, "-0.100000000"),
            (-2, 1, "-1.999999999"),
        ] {
            assert_eq!(decimal(Time { secs, nanos }), text);
        }
    }
}
