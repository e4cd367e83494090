//! `--take SIDE PATH` of `apply`: which side's state of an object is kept.

use std::ffi::OsString;

use super::Args;
use crate::cli::error::CliError;
use crate::cli::text;
use crate::inspect::apply::ApplyOptions;
use crate::inspect::opened::OpenSession;

/// The arguments with `--take=SIDE` as two, because clap takes one value after a `=`.
pub(in crate::cli) fn with_take_apart(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_option = true;
    let apart = |arg: OsString| {
        is_option &= arg != "--";
        let side = arg.to_str().filter(|_| is_option).and_then(|arg| arg.strip_prefix("--take="));
        match side {
            Some(side) => vec!["--take".into(), side.into()],
            None => vec![arg],
        }
    };
    args.flat_map(apart).collect()
}

/// Adds the paths of each side to the options.
pub(super) fn read_sides(
    args: &Args,
    opened: &OpenSession,
    options: &mut ApplyOptions,
) -> Result<(), CliError> {
    for side in args.take.chunks(2) {
        let [side, path] = side else { continue };
        let chosen_by_side = match side.to_str() {
            Some("session") => &mut options.take_session,
            Some("base") => &mut options.take_base,
            _ => {
                let what = format!("--take {}: not a side", side.display());
                return Err(CliError::new(what).with_hint("the sides are `session` and `base`"));
            }
        };
        let chosen = args.leave_out.read(opened, std::slice::from_ref(path))?;
        let path: Vec<_> = chosen.paths().cloned().collect();
        if path.is_empty() {
            let what = format!("--take {} takes a path, not a pattern", side.display());
            return Err(CliError::new(what));
        }
        chosen_by_side.extend(path);
    }
    let (session, mut base) = (&options.take_session, options.take_base.iter());
    if let Some(path) = base.find(|path| session.iter().any(|named| path.is_within(named))) {
        let path = text::name(path.as_bytes());
        return Err(CliError::new(format_args!("--take names both sides for {path}")));
    }
    Ok(())
}
