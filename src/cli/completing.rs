//! Completes command lines for the scripts of `acetate completions`.
//!
//! Read-only, silent on errors, and bounded in time, because it runs at each press of the Tab key.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::CompleteEnv;

use super::tree_paths::TreePaths;
use super::{mcp, text};
use crate::delta::AuditProcedure;
use crate::delta::sqlite::{AgentAccess, Order};
use crate::inspect::diff::{DiffOptions, diff};
use crate::inspect::hunks::{DiffPieces, HunkId, pieces};
use crate::inspect::kv::KeyValues;
use crate::inspect::log::{AuditLog, LogOptions};
use crate::inspect::opened::{OpenSession, open_session};
use crate::inspect::tool::ToolCalls;
use crate::vfs::FileKind;

/// The environment variable with the name of the shell; set by the scripts.
pub(super) const VARIABLE: &str = "ACETATE_COMPLETE";

/// The process exits without an answer after this time.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The most candidates in an answer.
const MAX_CANDIDATES: usize = 1000;

/// The last rows of the audit log that are searched for names of exports.
const MAX_CHANGES: u64 = 5000;

/// The start of a SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Answers a shell's request for completion; returns whether this was one.
pub(super) fn answer() -> bool {
    if std::env::var_os(VARIABLE).is_none_or(|shell| shell.is_empty() || shell == "0") {
        return false;
    }
    let shell = std::env::var_os(VARIABLE).unwrap_or_default();
    // A base that does not respond must not block the shell.
    std::thread::spawn(|| {
        std::thread::sleep(MAX_TIME);
        std::process::exit(0);
    });
    let here = std::env::current_dir().ok();
    let is_bash = Path::new(&shell).file_name() == Some(OsStr::new("bash"));
    let complete = CompleteEnv::with_factory(move || completed(super::command(), is_bash));
    let _failed = complete.var(VARIABLE).try_complete(std::env::args_os(), here.as_deref());
    true
}

/// Finds the candidates for a word.
type Find = fn(&[u8]) -> Option<Vec<Vec<u8>>>;

/// Adds completers to the arguments of all commands.
fn completed(command: Command, is_bash: bool) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_subcommands(|inner| completed(inner, is_bash));
    command.mut_args(|arg| {
        let find: Find = match (kind(&arg), name.as_str()) {
            ("SESSION.db", _) => {
                let completer = PathCompleter::any().filter(is_session);
                return arg.add(on_host(completer, is_bash));
            }
            ("DIR", _) => return arg.add(on_host(PathCompleter::dir(), is_bash)),
            ("PATH", "cp") => {
                return arg.add(ArgValueCompleter::new(move |word: &OsStr| copied(word, is_bash)));
            }
            ("PATH", "mkdir" | "find") if !arg.is_positional() => return arg,
            ("PATH", "diff" | "apply" | "log" | "discard" | "restore") => changed_paths,
            ("PATH", _) => tree_paths,
            ("CHECKPOINT", _) => checkpoints,
            ("KEY", _) => keys,
            ("TOOL", "mcp") => mcp_tools,
            ("TOOL", _) => tools,
            ("EXPORT", _) => exports,
            ("OP", _) => operations,
            ("SIDE", _) => sides,
            ("COMMAND", "help") => commands,
            ("ID", "apply" | "discard") => return arg.add(ArgValueCompleter::new(hunks)),
            _ => return arg,
        };
        arg.add(ArgValueCompleter::new(move |word: &OsStr| candidates(word, find, is_bash)))
    })
}

/// The value name of an argument in its help.
fn kind(arg: &Arg) -> &str {
    let shown = arg.get_value_names().and_then(|names| names.first());
    shown.map_or("", |name| name.as_str())
}

fn on_host(completer: PathCompleter, is_bash: bool) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| host_paths(word, &completer, is_bash))
}

/// Candidates among the paths of this machine; escaped for bash, which runs substitutions.
fn host_paths(word: &OsStr, completer: &PathCompleter, is_bash: bool) -> Vec<CompletionCandidate> {
    let plain = if is_bash { unescaped(word.as_bytes()) } else { word.as_bytes().to_vec() };
    let found = completer.complete(OsStr::from_bytes(&plain));
    let names = found.iter().map(|candidate| candidate.get_value().as_bytes().to_vec());
    answers(names, is_bash)
}

/// Candidates for a word. bash passes and expects words with escapes.
fn candidates(word: &OsStr, find: Find, is_bash: bool) -> Vec<CompletionCandidate> {
    let word = word.as_bytes();
    let plain = if is_bash { unescaped(word) } else { word.to_vec() };
    answers(find(&plain).unwrap_or_default().into_iter(), is_bash)
}

/// Converts names to candidates. The protocol has one name per line, so names with control
/// characters are left out.
fn answers(names: impl Iterator<Item = Vec<u8>>, is_bash: bool) -> Vec<CompletionCandidate> {
    let is_plain = |name: &Vec<u8>| {
        std::str::from_utf8(name).is_ok_and(|name| !name.contains(|c: char| c.is_control()))
    };
    let shown = names.filter(is_plain).take(MAX_CANDIDATES);
    let shown = shown.map(|name| if is_bash { escaped(&name) } else { name });
    shown.map(|name| CompletionCandidate::new(OsString::from_vec(name))).collect()
}

/// Removes the backslashes of a word from bash.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut is_after = false;
    let mut kept = word.to_vec();
    kept.retain(|byte| {
        is_after = *byte == b'\\' && !is_after;
        !is_after
    });
    kept
}

/// Escapes the characters of a word that are special in bash.
fn escaped(word: &[u8]) -> Vec<u8> {
    let is_special = |byte: &u8| b" \t\n\\'\"`$&|;<>()*?[]{}#~!".contains(byte);
    let escape = |byte: &u8| is_special(byte).then_some(b'\\').into_iter().chain([*byte]);
    word.iter().flat_map(escape).collect()
}

/// The words of the command line.
fn words() -> Vec<OsString> {
    let words = std::env::args_os().skip_while(|word| word != "--");
    words.skip(1).collect()
}

/// The words up to the one that is completed, with it.
fn words_so_far() -> Vec<OsString> {
    let mut words = words();
    words.truncate(word_index(words.len()).saturating_add(1));
    words
}

/// The word before the one that is completed.
fn word_before() -> Option<OsString> {
    let mut words = words_so_far();
    words.pop();
    words.pop()
}

/// Which of `count` words is completed.
fn word_index(count: usize) -> usize {
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse().ok());
    index.unwrap_or(count.saturating_sub(1))
}

/// The session of the command line: the first word that is a file, or $ACETATE_SESSION.
fn session() -> Option<PathBuf> {
    let files = words().into_iter().skip(1).map(PathBuf::from);
    let named = files.into_iter().find(|word| word.is_file());
    named.or_else(|| std::env::var_os("ACETATE_SESSION").map(PathBuf::from))
}

/// The base of the command line.
fn base() -> Option<PathBuf> {
    let words = words();
    let apart = words.windows(2).find(|pair| pair[0] == "--base").map(|pair| pair[1].clone());
    let joined = || {
        let value = words.iter().find_map(|word| word.as_bytes().strip_prefix(b"--base="));
        value.map(|value| OsString::from_vec(value.to_vec()))
    };
    apart.or_else(joined).map(PathBuf::from)
}

/// Whether a file is a session, by its extension, or by its content if it has none.
fn is_session(path: &Path) -> bool {
    use std::io::Read;
    let begins = || {
        let mut magic = [0; MAGIC.len()];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == MAGIC
    };
    match path.extension() {
        Some(extension) => extension == "db" && path.is_file(),
        None => path.is_file() && begins(),
    }
}

/// Paths of the tree that begin with a word.
fn tree_paths(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    paths(word, false)
}

/// The same, with the paths that the session deleted.
fn changed_paths(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    paths(word, true)
}

fn paths(word: &[u8], has_gone: bool) -> Option<Vec<Vec<u8>>> {
    let opened = OpenSession::open(&session()?, base().as_deref()).ok()?;
    let cut = word.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (above, prefix) = word.split_at(cut);
    let dir = if above.is_empty() { b"." } else { above };
    let dir = TreePaths::of(&opened).one(OsStr::from_bytes(dir)).ok()?;
    let found = opened.with_tree(|view| {
        let gone = match has_gone {
            true => view.gone_names(&dir, prefix, MAX_CANDIDATES).unwrap_or_default(),
            false => Vec::new(),
        };
        let children = match crate::inspect::opened::find(view, &dir) {
            Ok(dir) => view.children_beginning(&dir, prefix, MAX_CANDIDATES).unwrap_or_default(),
            // It may be deleted.
            Err(_) => Vec::new(),
        };
        let children = children.into_iter().map(|(name, object)| (name, object.attr().kind));
        let mut names: Vec<_> = children.chain(gone).collect();
        names.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        Ok(names)
    });
    let shown = |(name, kind): (crate::vfs::Name, FileKind)| {
        let slash: &[u8] = if kind == FileKind::Directory { b"/" } else { b"" };
        [above, name.as_bytes(), slash].concat()
    };
    Some(found.ok()?.into_iter().map(shown).collect())
}

/// Candidates for `cp`: after a colon, paths of the tree; otherwise paths of this machine. In bash,
/// the colon is a word of its own.
fn copied(word: &OsStr, is_bash: bool) -> Vec<CompletionCandidate> {
    let colon: Find = |word| {
        let found = tree_paths(word.strip_prefix(b":")?)?;
        Some(found.into_iter().map(|path| [b":", &path[..]].concat()).collect())
    };
    let is_behind = is_bash && word_before().is_some_and(|word| word == ":");
    match word.as_bytes().first() {
        Some(b':') => candidates(word, colon, is_bash),
        _ if is_behind => candidates(word, tree_paths, is_bash),
        _ => host_paths(word, &PathCompleter::any(), is_bash),
    }
}

fn keys(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let keys = KeyValues::open(&session()?, AgentAccess::Read).ok()?.keys(word).ok()?;
    Some(keys.into_iter().map(|key| key.key).collect())
}

fn checkpoints(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let all = crate::inspect::checkpoint::checkpoints(&open_session(&session()?).ok()?).ok()?;
    let shown = all.into_iter().map(|one| {
        let id = one.id.to_string();
        one.name.unwrap_or(id).into_bytes()
    });
    Some(shown.filter(|name| name.starts_with(word)).collect())
}

fn tools(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let stats = ToolCalls::open(&session()?, AgentAccess::Read).ok()?.stats().ok()?;
    let names = stats.into_iter().map(|tool| tool.name);
    Some(names.filter(|name| name.starts_with(word)).collect())
}

/// Names of commands, below the words after `help`.
fn commands(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let words = words();
    let above = words.get(2..word_index(words.len()))?;
    let mut command = super::command();
    command.build();
    let found = above.iter().try_fold(&command, |above, word| above.find_subcommand(word))?;
    let shown = found.get_subcommands().filter(|inner| !inner.is_hide_set());
    let names = shown.map(|inner| inner.get_name().as_bytes().to_vec());
    Some(names.filter(|name| name.starts_with(word)).collect())
}

/// Names of exports in the last rows of the audit log.
fn exports(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let last = Some(MAX_CHANGES);
    let options = LogOptions { order: Order::NewestFirst, last, ..LogOptions::default() };
    let mut names = BTreeSet::new();
    let read =
        AuditLog::open(&open_session(&session()?).ok()?, options).ok()?.read(&mut |_, row| {
            let export = row.ok().and_then(|row| row.export);
            names.extend(export.map(|name| name.as_bytes().to_vec()));
            ControlFlow::Continue(())
        });
    read.ok()?;
    Some(names.into_iter().filter(|name| name.starts_with(word)).collect())
}

/// Names of operations, in the case of the word.
fn operations(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_upper = word.first().is_some_and(u8::is_ascii_uppercase);
    let names = AuditProcedure::ALL.map(AuditProcedure::as_str).map(|name| match is_upper {
        true => name.to_ascii_uppercase(),
        false => name.to_ascii_lowercase(),
    });
    let names = names.into_iter().map(String::into_bytes);
    Some(names.filter(|name| name.starts_with(word)).collect())
}

/// The tools of `mcp`.
fn mcp_tools(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let names = mcp::tool_names().map(|name| name.as_bytes().to_vec());
    Some(names.filter(|name| name.starts_with(word)).collect())
}

/// The values of `--take`: a side, then a path.
fn sides(word: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_side = match words_so_far().as_slice() {
        // bash has `=` as a word of its own.
        [.., option, sign, _] if sign == "=" => option == "--take",
        [.., option, word] => option == "--take" || word.as_bytes().starts_with(b"--take="),
        _ => false,
    };
    if !is_side {
        return changed_paths(word);
    }
    let sides = [&b"base"[..], b"session"].map(<[u8]>::to_vec);
    Some(sides.into_iter().filter(|side| side.starts_with(word)).collect())
}

/// The ids of hunks, with the path of each.
fn hunks(word: &OsStr) -> Vec<CompletionCandidate> {
    let begin = word.as_bytes().to_ascii_lowercase();
    let find = || {
        let opened = OpenSession::open(&session()?, base().as_deref()).ok()?;
        let mut found = Vec::new();
        let read = diff(&opened, &DiffOptions::default(), &mut |view, difference| {
            let ids = match pieces(&opened, view, &difference)? {
                DiffPieces::Whole(id) => vec![id],
                DiffPieces::File(file) => file.ids().collect(),
            };
            let path = text::name(difference.path.as_bytes());
            let ids = ids.iter().map(HunkId::to_string);
            for id in ids.filter(|id| id.as_bytes().starts_with(&begin)) {
                found.push(CompletionCandidate::new(id).help(Some(path.clone().into())));
            }
            let is_full = found.len() >= MAX_CANDIDATES;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        read.ok().map(|()| found)
    };
    find().unwrap_or_default()
}
