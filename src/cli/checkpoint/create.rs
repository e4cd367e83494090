//! `acetate checkpoint create`: makes a checkpoint.

use super::moment;
use crate::cli::change::with_session_changer;
use crate::cli::error::CliError;
use crate::cli::mount_events::sync_mounts;
use crate::cli::output::Out;
use crate::cli::source::SessionSource;
use crate::cli::{Ending, text};
use crate::control::{Answer, CheckpointText, Request};
use crate::delta::CheckpointKind;
use crate::inspect::checkpoint::{check_name, labels};

/// Make a checkpoint of the session's tree as it is now, and print its id.
///
/// It has all changes that the session has answered. On Linux, the mounts of this machine are
/// synced first. What a client on another machine still holds back is not in it: `sync` there
/// before. From then on, the session keeps what changes, until the checkpoint is removed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// A name that no other checkpoint of the session has.
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Keep a key and value with it; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,

    /// Print a JSON object: session, id, name.
    #[arg(long)]
    json: bool,
}

/// Makes the checkpoint.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let id = create(&args.source, args.name.as_deref(), &args.label)?;
    let session = args.source.session.display().to_string();
    let mut out = Out::new();
    if args.json {
        let mut json = text::json("checkpoint_created");
        json.insert("session".to_owned(), session.into());
        json.insert("id".to_owned(), id.into());
        json.insert("name".to_owned(), args.name.clone().into());
        out.json(json)?;
    } else {
        out.line(format_args!("{id}"))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

/// Makes a checkpoint with labels of the form `KEY=VALUE`; returns its id.
pub(in crate::cli) fn create(
    source: &SessionSource,
    name: Option<&str>,
    label: &[String],
) -> Result<i64, CliError> {
    if let Some(name) = name {
        check_name(name, &|text| moment(text).is_some())?;
    }
    let (kind, labels) = (CheckpointKind::Manual.as_str().to_owned(), labels(label)?);
    let new = CheckpointText { name: name.map(str::to_owned), kind, labels, reuses: false };
    sync_mounts(&source.session);
    let made = with_session_changer(source, |changer| changer.ask(Request::CreateCheckpoint(new)))?;
    match made {
        Answer::Checkpoint(Some(id)) => Ok(id),
        Answer::Checkpoint(None) => {
            let name = text::name(name.unwrap_or_default().as_bytes());
            let session = source.session.display();
            let taken = CliError::new(format!("{name}: another checkpoint has this name"));
            Err(taken.with_hint(format_args!(
                "give another name, or remove that one: acetate checkpoint rm {session} {name}"
            )))
        }
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}
