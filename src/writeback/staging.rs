//! [`Staging`]: the directory at the top of the target in which objects are prepared.
//!
//! `new/` has objects to be placed, `taken/` objects moved away from the target, and `replaced/`
//! the files that are replaced in it. Each object is named by its slot number. The content of the
//! slots shows exactly which renames were done.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::staged::StagedFile;
use super::xattrs::{self, Xattrs};
use super::{
    Attrs, ChangedDir, DIRECTORY, Result, SeenObject, Target, TargetError, Unset, attrs,
    check_entries, own_dir, sweep, sync_all, unreadable, write_whole,
};
use crate::base::{BasePath, STAGING, STAGING_JOURNAL};
use crate::vfs::{Device, FileKind, Time};

/// Identifies an object in the staging.
pub type StagingSlot = u64;

/// The subdirectories of a staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StagingDir {
    /// Objects to be placed.
    New,
    /// Objects moved away from the target.
    Taken,
    /// Copies or hard links of files of the target that are replaced.
    Replaced,
}

/// An open staging, locked exclusively.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    dir: File,
    new: OwnedFd,
    taken: OwnedFd,
    replaced: OwnedFd,
}

/// Names of the subdirectories.
const NEW: &str = "new";
const TAKEN: &str = "taken";
const REPLACED: &str = "replaced";

/// Name of the journal while it is written.
const JOURNAL_BEGUN: &str = "journal-unfinished";

/// The end of the name of a file while it is written.
const UNFINISHED: &str = "-unfinished";

/// Name of the file with facts that the slots do not show.
const NOTES: &str = "notes";

/// Name of the file with [`TopNote`].
const TOP: &str = "top";

/// Name of the file that notes a mode which is changed for a moment.
const MODE: &str = "mode";

/// The mtime of the target's top, which moves as the staging is made and removed, and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TopNote {
    /// What it is to have without the staging.
    wanted: Time,
    /// What it has while the staging is there.
    during: Time,
    /// The mode that it is to have without the staging, and its ctime when that was noted, which a
    /// later chmod changes; `None` leaves the mode as it is.
    mode: Option<(u32, Time)>,
}

impl Target {
    /// Opens the staging, and creates it if `made` is set. `None` if it does not exist.
    ///
    /// # Errors
    /// The host refuses; WouldBlock if another process has the staging open.
    pub fn staging(&self, made: bool) -> Result<Option<Staging>> {
        let path = self.path.join(STAGING);
        let opened = || -> io::Result<Option<Staging>> {
            let top = self.readable(&BasePath::root())?;
            let wanted = mtime(&top)?;
            let is_new = match made.then(|| rustix::fs::mkdirat(&top, STAGING, Mode::RWXU)) {
                None | Some(Err(Errno::EXIST)) => false,
                Some(Ok(())) => true,
                Some(Err(error)) => return Err(error.into()),
            };
            let dir = match own_dir(&top, STAGING) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                dir => dir?,
            };
            check_entries(&dir, is_ours)?;
            if is_new {
                let times = TopNote { wanted, during: mtime(&top)?, mode: None };
                // Only a run that is killed needs it.
                let _full_disk = times.write(&dir);
            }
            rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
            let [new, taken, replaced] = subdirs(&dir)?;
            Ok(Some(Staging { path: path.clone(), dir, new, taken, replaced }))
        };
        opened().map_err(|source| TargetError { path: path.clone(), source })
    }

    /// The attributes that the top is to have without the staging: `now`, but for the noted mode
    /// and mtime, unless something has changed the top since these were noted.
    ///
    /// # Errors
    /// The host refuses.
    pub fn noted_top(&self, staging: &Staging, now: Attrs) -> Result<Attrs> {
        let read = || -> io::Result<Attrs> {
            let [mtime, ctime] = times(&self.readable(&BasePath::root())?)?;
            let noted = TopNote::read(&staging.dir)?.filter(|noted| noted.during == mtime);
            let mode = noted.and_then(|noted| noted.mode).filter(|(_, then)| *then == ctime);
            let mode = mode.map_or(now.mode, |(mode, _)| mode);
            Ok(match noted {
                Some(noted) => Attrs { mode, mtime: noted.wanted, ..now },
                None => now,
            })
        };
        read().map_err(|source| staging.error(source))
    }

    /// Notes which mode and mtime the top is to have without the staging, for a run that finds what
    /// an interrupted removal leaves.
    ///
    /// # Errors
    /// The host refuses.
    pub fn note_top(&self, staging: &Staging, wanted: &Attrs) -> Result<()> {
        let noted = || -> io::Result<()> {
            let [during, ctime] = times(&self.readable(&BasePath::root())?)?;
            let mode = Some((wanted.mode, ctime));
            TopNote { wanted: wanted.mtime, during, mode }.write(&staging.dir)
        };
        noted().map_err(|source| staging.error(source))
    }

    /// Removes the staging and its content. The journal is removed first, so that an interrupted
    /// removal does not leave work to be resumed; the note of the top's mtime is removed last.
    /// Returns the top, which loses the staging.
    ///
    /// # Errors
    /// The host refuses.
    pub fn remove(&self, staging: Staging) -> Result<ChangedDir> {
        let removed = || -> io::Result<ChangedDir> {
            for file in [STAGING_JOURNAL, JOURNAL_BEGUN, NOTES] {
                match rustix::fs::unlinkat(&staging.dir, file, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
                if file == STAGING_JOURNAL {
                    staging.dir.sync_all()?;
                }
            }
            sweep::sweep_all_but(&staging.dir, Some(TOP))?;
            sweep::sweep(&staging.dir)?;
            let top = self.readable(&BasePath::root())?;
            let remove = || Ok(rustix::fs::unlinkat(&top, STAGING, AtFlags::REMOVEDIR)?);
            ChangedDir::around(&top, remove)
        };
        removed().map_err(|source| TargetError { path: staging.path.clone(), source })
    }
}

/// Whether a staging has entries of this name.
fn is_ours(name: &[u8]) -> bool {
    let name = name.strip_suffix(UNFINISHED.as_bytes()).unwrap_or(name);
    let ours = [NEW, TAKEN, REPLACED, STAGING_JOURNAL, NOTES, TOP, MODE];
    ours.iter().any(|ours| ours.as_bytes() == name)
}

impl TopNote {
    fn write(self, dir: &File) -> io::Result<()> {
        let Self { wanted, during, mode } = self;
        let (begun, times) = (format!("{TOP}{UNFINISHED}"), [wanted, during]);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, &*begun, flags, Mode::RUSR | Mode::WUSR)?;
        let mut text = times.map(|time| format!("{} {}", time.secs, time.nanos)).join(" ");
        text.extend(mode.map(|(mode, at)| format!(" {mode} {} {}", at.secs, at.nanos)));
        File::from(file).write_all(text.as_bytes())?;
        Ok(rustix::fs::renameat(dir, &*begun, dir, TOP)?)
    }

    /// What was written; `None` if nothing was.
    fn read(dir: &File) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, TOP, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => File::from(file?),
        };
        let text = io::read_to_string(file)?;
        let numbers: Option<Vec<i64>> = text.split(' ').map(|number| number.parse().ok()).collect();
        let numbers = numbers.unwrap_or_default();
        let number = |at: usize| u32::try_from(*numbers.get(at)?).ok();
        let time = |at: usize| Some(Time { secs: *numbers.get(at)?, nanos: number(at + 1)? });
        let mode = number(4).and_then(|mode| Some((mode, time(5)?)));
        Ok(time(0).and_then(|wanted| Some(Self { wanted, during: time(2)?, mode })))
    }
}

fn mtime(dir: &impl AsFd) -> io::Result<Time> {
    times(dir).map(|[mtime, _]| mtime)
}

/// The mtime and ctime of an open directory.
fn times(dir: &impl AsFd) -> io::Result<[Time; 2]> {
    let seen = SeenObject::of(&rustix::fs::fstat(dir)?)?;
    Ok([seen.mtime, seen.ctime.unwrap_or_default()])
}

fn subdirs(dir: &File) -> io::Result<[OwnedFd; 3]> {
    Ok([subdir(dir, NEW)?, subdir(dir, TAKEN)?, subdir(dir, REPLACED)?])
}

/// Opens a subdirectory of the staging; creates it if necessary.
fn subdir(dir: &File, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let subdir = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?;
    // New objects must not inherit the default ACL of the target's top.
    #[cfg(target_os = "linux")]
    match rustix::fs::fremovexattr(&subdir, xattrs::DEFAULT_ACL) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(subdir)
}

/// Unlocks explicitly: a child process that is being started may share the descriptor for a moment.
impl Drop for Staging {
    fn drop(&mut self) {
        let _gone_with_the_descriptor = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }
}

impl Staging {
    /// The directory and name of a slot.
    pub(super) fn place(&self, subdir: StagingDir, slot: StagingSlot) -> (BorrowedFd<'_>, CString) {
        let dir = match subdir {
            StagingDir::New => self.new.as_fd(),
            StagingDir::Taken => self.taken.as_fd(),
            StagingDir::Replaced => self.replaced.as_fd(),
        };
        // A number contains no NUL.
        (dir, CString::new(slot.to_string()).unwrap_or_default())
    }

    /// The path of a slot in the target.
    pub fn path_of(subdir: StagingDir, slot: StagingSlot) -> BasePath {
        let subdir = match subdir {
            StagingDir::New => NEW,
            StagingDir::Taken => TAKEN,
            StagingDir::Replaced => REPLACED,
        };
        BasePath::from_bytes(format!("{STAGING}/{subdir}/{slot}").as_bytes()).unwrap_or_default()
    }

    /// The staging's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, source: impl Into<io::Error>) -> TargetError {
        TargetError { path: self.path.clone(), source: source.into() }
    }

    /// When the staging was created, by the clock of its filesystem.
    ///
    /// # Errors
    /// The staging cannot be accessed; also for all methods below.
    pub fn made_at(&self) -> Result<Time> {
        let stat = rustix::fs::fstat(&self.new).map_err(|error| self.error(error))?;
        let seen = SeenObject::of(&stat).map_err(|source| self.error(source))?;
        Ok(seen.ctime.unwrap_or_default())
    }

    /// The object in a slot, if there is one.
    pub fn look(&self, subdir: StagingDir, slot: StagingSlot) -> Result<Option<SeenObject>> {
        let (dir, name) = self.place(subdir, slot);
        SeenObject::at(dir, name.as_bytes()).map_err(|source| self.error(source))
    }

    /// Creates an empty file, to be filled.
    pub fn file(&self, slot: StagingSlot) -> Result<StagedFile> {
        let (dir, name) = self.place(StagingDir::New, slot);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
        Ok(StagedFile::new(file.map_err(|error| self.error(error))?.into()))
    }

    /// Creates an empty directory with mode 0700; the final mode is set once it is filled.
    pub fn directory(&self, slot: StagingSlot) -> Result<()> {
        let (dir, name) = self.place(StagingDir::New, slot);
        rustix::fs::mkdirat(dir, name, Mode::RWXU).map_err(|error| self.error(error))
    }

    /// Creates a symbolic link.
    pub fn symlink(&self, slot: StagingSlot, target: &[u8]) -> Result<()> {
        let (dir, name) = self.place(StagingDir::New, slot);
        rustix::fs::symlinkat(target, dir, name).map_err(|error| self.error(error))
    }

    /// Creates a hard link of the file in the slot `of`.
    pub fn link(&self, slot: StagingSlot, of: StagingSlot) -> Result<()> {
        let (dir, name) = self.place(StagingDir::New, slot);
        let (_, of) = self.place(StagingDir::New, of);
        rustix::fs::linkat(dir, of, dir, name, AtFlags::empty()).map_err(|error| self.error(error))
    }

    /// Creates a FIFO, socket or device.
    #[cfg(target_os = "linux")]
    pub fn special(&self, slot: StagingSlot, kind: FileKind, device: Device) -> Result<()> {
        use rustix::fs::FileType;
        let (dir, name) = self.place(StagingDir::New, slot);
        let kind = match kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::Block => FileType::BlockDevice,
            FileKind::Character => FileType::CharacterDevice,
            _ => return Err(self.error(Errno::INVAL)),
        };
        let device = rustix::fs::makedev(device.major, device.minor);
        rustix::fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, device)
            .map_err(|error| self.error(error))
    }

    /// No portable call creates special files in an open directory.
    #[cfg(not(target_os = "linux"))]
    pub fn special(&self, _slot: StagingSlot, _kind: FileKind, _device: Device) -> Result<()> {
        Err(self.error(io::Error::new(
            io::ErrorKind::Unsupported,
            "fifos, sockets and devices cannot be made on this system",
        )))
    }

    /// Sets the attributes, and the extended attributes `carried`, of the object in a slot of
    /// [`StagingDir::New`]. Returns the names of extended attributes that the host refuses. With an
    /// access ACL, the group bits of the mode set its mask, as in chmod(2).
    pub fn set(
        &self,
        slot: StagingSlot,
        attrs: &Attrs,
        carried: &Xattrs,
    ) -> Result<(Unset, Vec<String>)> {
        let (dir, name) = self.place(StagingDir::New, slot);
        let refused = xattrs::write(dir, name.as_bytes(), carried);
        let mut attrs = attrs.clone();
        if xattrs::has_access_acl(&refused) {
            attrs.mode = carried.without_acl(attrs.mode);
        }
        let unset = attrs::set(dir, name.as_bytes(), &attrs);
        let unset = unset.map_err(|source| self.error(source))?;
        let refused = refused.iter().map(|name| name.to_string_lossy().into_owned());
        Ok((unset, refused.collect()))
    }

    /// Removes a partly created object from a slot of [`StagingDir::New`].
    pub fn discard_partial(&self, slot: StagingSlot) -> Result<()> {
        let (dir, name) = self.place(StagingDir::New, slot);
        match rustix::fs::unlinkat(dir, &*name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Syncs the prepared objects, and then writes the journal. From then on, an interrupted apply
    /// must be finished.
    pub fn begin(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        write_whole(&self.dir, (JOURNAL_BEGUN, STAGING_JOURNAL), write)
            .map_err(|source| self.error(source))
    }

    /// The journal, if it was written completely.
    pub fn journal(&self) -> Result<Option<File>> {
        self.read(STAGING_JOURNAL)
    }

    /// The notes, if there are any.
    pub fn notes(&self) -> Result<Option<File>> {
        self.read(NOTES)
    }

    fn read(&self, name: &str) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Appends a line to the notes, synced.
    pub fn note(&self, line: &str) -> Result<()> {
        self.note_unsynced(line)?;
        sync_all(&self.dir).map_err(|source| self.error(source))
    }

    /// Appends a line to the notes, which survives a kill, and perhaps a power loss.
    pub fn note_unsynced(&self, line: &str) -> Result<()> {
        let noted = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file: File = rustix::fs::openat(&self.dir, NOTES, flags, mode)?.into();
            // A line of an interrupted run may have no end.
            file.write_all(format!("\n{line}\n").as_bytes())
        };
        noted().map_err(|source| self.error(source))
    }

    /// The mtimes of the directories whose slots takes and puts fill and empty: when the last of
    /// these steps was done.
    pub fn step_times(&self) -> Result<[Time; 2]> {
        let read = || -> io::Result<_> { Ok([mtime(&self.new)?, mtime(&self.taken)?]) };
        read().map_err(|source| self.error(source))
    }

    /// The mtime that the top has since the staging was made, if that was noted.
    pub fn noted_mtime(&self) -> Result<Option<Time>> {
        let noted = TopNote::read(&self.dir).map_err(|source| self.error(source))?;
        Ok(noted.map(|noted| noted.during))
    }

    /// Notes, synced, the mode of a file before it is changed for a moment.
    pub(super) fn note_mode(&self, note: &[u8]) -> io::Result<()> {
        let begun = format!("{MODE}{UNFINISHED}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &*begun, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(note)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.dir, &*begun, &self.dir, MODE)?;
        self.dir.sync_all()
    }

    /// Removes that note: the file has its mode again.
    pub(super) fn forget_mode(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, MODE, AtFlags::empty())?)
    }

    /// Restores the mode of a file that a killed run changed for a moment.
    pub fn restore_mode(&self) -> Result<()> {
        let Some(mut file) = self.read(MODE)? else { return Ok(()) };
        let mut noted = Vec::new();
        file.read_to_end(&mut noted).map_err(|source| self.error(source))?;
        unreadable::restore(&noted)?;
        self.forget_mode().map_err(|source| self.error(source))
    }

    /// Removes everything that an earlier run left without having written its journal.
    pub fn clear(&mut self) -> Result<()> {
        let cleared = || -> io::Result<[OwnedFd; 3]> {
            sweep::sweep_all_but(&self.dir, Some(TOP))?;
            subdirs(&self.dir)
        };
        [self.new, self.taken, self.replaced] = cleared().map_err(|source| self.error(source))?;
        Ok(())
    }
}
