//! `acetate export`: writes the merged tree to an archive or a directory.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::CliError;
use super::output::{self, Out, ProgressLine};
use super::partial::Partial;
use super::selecting::{LeaveOut, tell_unmatched};
use super::source::PastSource;
use super::{Ending, text};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::export::{
    CopyOutOptions, ExportSink, ExportWatch, Exported, Keep, OutputDir, Tar, check_place, export,
};
use crate::inspect::opened::OpenSession;

/// The size of the output buffer.
const BUFFER_BYTES: usize = 1 << 18;

/// Write a session's merged tree to an archive or a directory.
///
/// All attributes that a mount shows are kept: modes, owners, times, hard links, holes; but an
/// archive has whole seconds without --exact-times, and a directory gets devices and the
/// set-user-ID and set-group-ID bits of files only with an option. With --delta-only it is what
/// the session changed, as a layer of an OCI image: `.wh.NAME` for what is gone,
/// `.wh..wh..opq` in a directory that replaces the base's. A layer has no holes:
/// up to 1 GiB of them is written as zeros. What cannot be written (a socket in an
/// archive, a file that may not be read or is too large) is named on stderr and left out; then the
/// exit code is 1.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("to").required(true)))]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Write a tar archive (POSIX pax); `-` is stdout.
    #[arg(long, value_name = "FILE", group = "to")]
    tar: Option<PathBuf>,

    /// Fill a directory, which must be empty or missing.
    #[arg(long, value_name = "DIR", group = "to")]
    dir: Option<PathBuf>,

    /// Only what is in this directory of the tree, or this file, or matches this pathspec
    /// [default: /].
    #[arg(value_name = "PATH")]
    path: Option<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Only what differs from the base, as a layer over it.
    #[arg(long)]
    delta_only: bool,

    /// Replace an existing FILE.
    #[arg(long, conflicts_with = "dir")]
    force: bool,

    /// Keep times to the nanosecond in the archive: 1 KiB more for each object.
    #[arg(long, requires = "tar")]
    exact_times: bool,

    /// Keep the set-user-ID and set-group-ID bits of files in DIR.
    ///
    /// Only where they get their owner.
    #[arg(long, requires = "dir")]
    set_id: bool,

    /// Make block and character devices in DIR.
    #[arg(long, requires = "dir")]
    devices: bool,

    /// Print a JSON object, and before it one for each thing that is left out.
    ///
    /// Fields: session, to, objects, files, directories, links, whiteouts, bytes, left_out,
    /// not_owned, without_set_id.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open_settled()?;
    let selection = args.leave_out.read(&opened, args.path.as_slice())?;
    let path = selection.paths().next().cloned().unwrap_or_else(MergedPath::root);
    let options = CopyOutOptions { path, selection, delta_only: args.delta_only };
    let ending = match (&args.tar, &args.dir) {
        (Some(file), _) if file.as_os_str() == "-" => to_stdout(args, &opened, &options)?,
        (Some(file), _) => to_file(args, &opened, &options, file)?,
        (None, Some(dir)) => to_dir(args, &opened, &options, dir)?,
        (None, None) => return Err(CliError::new("say where to: --tar FILE or --dir DIR")),
    };
    tell_unmatched(&options.selection, "path");
    Ok(ending)
}

fn to_stdout(
    args: &Args,
    opened: &OpenSession,
    options: &CopyOutOptions,
) -> Result<Ending, CliError> {
    if args.json {
        let error = CliError::new("--json and the archive cannot both go to stdout");
        return Err(error.with_hint("write the archive to a file: --tar FILE"));
    }
    if io::stdout().is_terminal() {
        let error = CliError::new("refusing to write an archive to a terminal");
        return Err(error.with_hint("write it to a file: --tar FILE"));
    }
    let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let tar = Tar::new(out, PathBuf::from("stdout"));
    let mut tar = tar.with_exact_times(args.exact_times);
    let seen = ExportObserver::new();
    let mut done = Exported::default();
    let written = write(opened, options, &mut tar, &seen, &mut done);
    let written = written.and_then(|()| tar.finish()).and_then(|mut out| {
        let path = PathBuf::from("stdout");
        out.flush().map_err(|source| InspectError::Write { path, source })
    });
    match written {
        Ok(()) => Ok(ending(&done)),
        Err(InspectError::Write { source, .. }) => Err(CliError::stdout(&source)),
        Err(error) => Err(error.into()),
    }
}

fn to_file(
    args: &Args,
    opened: &OpenSession,
    options: &CopyOutOptions,
    file: &Path,
) -> Result<Ending, CliError> {
    check_place(opened, file)?;
    require_new(args, file)?;
    let partial = Partial::create(file)?;
    let out = partial.file.try_clone().map_err(|error| partial.error(&error))?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut tar = Tar::new(out, partial.path.clone()).with_exact_times(args.exact_times);
    let seen = ExportObserver::new();
    let mut done = Exported::default();
    write(opened, options, &mut tar, &seen, &mut done)?;
    tar.finish()?.flush().map_err(|error| partial.error(&error))?;
    require_new(args, file)?;
    partial.keep_as(file)?;
    summary(args, file, &done, &seen, NotKept::default())
}

fn to_dir(
    args: &Args,
    opened: &OpenSession,
    options: &CopyOutOptions,
    path: &Path,
) -> Result<Ending, CliError> {
    check_place(opened, path)?;
    let keep = Keep { set_id: args.set_id, devices: args.devices };
    let mut dir = OutputDir::create(path, keep)?;
    let seen = ExportObserver::new();
    let mut done = Exported::default();
    write(opened, options, &mut dir, &seen, &mut done).map_err(|error| {
        let objects = text::count(done.objects(), "object");
        let error = format!("{error}; written to {}: {objects}", path.display());
        CliError::new(error).with_hint("remove it before you try again, or take another directory")
    })?;
    let not_kept = NotKept {
        owners: dir.not_owned(),
        set_ids: dir.without_set_id(),
        devices: dir.unmade_devices(),
    };
    summary(args, path, &done, &seen, not_kept)
}

fn write(
    opened: &OpenSession,
    options: &CopyOutOptions,
    sink: &mut dyn ExportSink,
    seen: &ExportObserver,
    done: &mut Exported,
) -> Result<(), InspectError> {
    let written = export(opened, options, sink, seen, done);
    seen.progress.borrow_mut().end();
    written
}

fn require_new(args: &Args, file: &Path) -> Result<(), CliError> {
    if args.force || file.symlink_metadata().is_err() {
        return Ok(());
    }
    let error = CliError::new(format_args!("{}: file exists", file.display()));
    Err(error.with_hint("choose another name, or replace it with --force"))
}

fn ending(done: &Exported) -> Ending {
    if done.left_out > 0 { Ending::Findings } else { Ending::Done }
}

/// Numbers of objects that a directory holds without something of the session's.
#[derive(Default)]
struct NotKept {
    owners: u64,
    set_ids: u64,
    /// Device nodes that are left out, because they were not asked for.
    devices: u64,
}

fn summary(
    args: &Args,
    to: &Path,
    done: &Exported,
    seen: &ExportObserver,
    not_kept: NotKept,
) -> Result<Ending, CliError> {
    let mut out = Out::new();
    if args.json {
        for object in seen.left_out.take() {
            out.json(object)?;
        }
        let mut object = text::json("export");
        text::put_path(
            &mut object,
            "session",
            args.source.session().as_os_str().as_encoded_bytes(),
        );
        text::put_path(&mut object, "to", to.as_os_str().as_encoded_bytes());
        for (key, count) in [
            ("objects", done.objects()),
            ("files", done.files),
            ("directories", done.directories),
            ("links", done.links),
            ("whiteouts", done.whiteouts),
            ("bytes", done.bytes),
            ("left_out", done.left_out),
            ("not_owned", not_kept.owners),
            ("without_set_id", not_kept.set_ids),
        ] {
            object.insert(key.to_owned(), count.into());
        }
        out.json(object)?;
    } else {
        let (session, to) = (args.source.session().display(), to.display());
        let objects = text::count(done.objects(), "object");
        let bytes = text::bytes(done.bytes);
        out.line(format_args!("{session}: {objects}, {bytes}, written to {to}"))?;
    }
    out.end()?;
    if not_kept.owners > 0 {
        output::line(format_args!(
            "yours now: {}; only root may give files away",
            text::count(not_kept.owners, "object"),
        ));
    }
    if not_kept.set_ids > 0 {
        output::line(format_args!(
            "without set-user-ID and set-group-ID: {}; --set-id keeps them where you may give \
             files away",
            text::count(not_kept.set_ids, "file"),
        ));
    }
    if not_kept.devices > 0 {
        output::line(format_args!("--devices makes device nodes, too"));
    }
    Ok(ending(done))
}

/// Reports on an export in progress.
struct ExportObserver {
    progress: RefCell<ProgressLine>,
    left_out: RefCell<Vec<Map<String, Value>>>,
}

/// The most objects that are listed as left out.
const MAX_LEFT_OUT_TOLD: usize = 1000;

impl ExportObserver {
    fn new() -> Self {
        let progress = RefCell::new(ProgressLine::new("exporting", io::stderr().is_terminal()));
        Self { progress, left_out: RefCell::default() }
    }
}

impl ExportWatch for ExportObserver {
    fn progress(&self, objects: u64, bytes: u64) {
        let text = || format!("{}, {}", text::count(objects, "object"), text::bytes(bytes));
        self.progress.borrow_mut().say(text);
    }

    fn left_out(&self, path: &MergedPath, why: &str) {
        let mut told = self.left_out.borrow_mut();
        if told.len() >= MAX_LEFT_OUT_TOLD {
            return;
        }
        let mut object = text::json("left_out");
        text::put_path(&mut object, "path", path.as_bytes());
        object.insert("why".to_owned(), why.into());
        told.push(object);
        self.progress.borrow_mut().end();
        output::line(format_args!("{}: left out: {why}", text::name(path.as_bytes())));
    }
}
