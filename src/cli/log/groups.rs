//! `acetate log --summary` and `--by`: the log in groups.

use serde_json::{Map, Value};

use super::Grouping;
use crate::cli::diff::whose;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::text;
use crate::delta::{AuditRow, MergedPath};
use crate::inspect::audit_counts::{Tallies, Tally, ToolWindows, client_name};
use crate::inspect::tool_owned::ToolOwnedFiles;

/// Changes, counted in groups.
pub(super) struct LogGroups {
    grouping: Grouping,
    tools: Option<ToolWindows>,
    tallies: Tallies,
}

impl LogGroups {
    /// None yet; `tools` are the calls that changes are attributed to, where these are the groups.
    pub(super) fn new(grouping: Grouping, tools: Option<ToolWindows>) -> Self {
        Self { grouping, tools, tallies: Tallies::default() }
    }

    /// Counts a change, the row of the log with this id.
    pub(super) fn add(&mut self, id: i64, row: &AuditRow) {
        let tallies = &mut self.tallies;
        match self.grouping {
            Grouping::Path => {
                tallies.add(Some(row.path.as_bytes()), row);
                if let Some(to) = &row.path2 {
                    tallies.add(Some(to.as_bytes()), row);
                }
            }
            Grouping::Client => tallies.add(Some(client_name(row.client).as_bytes()), row),
            Grouping::Export => tallies.add(row.export.as_deref().map(str::as_bytes), row),
            Grouping::Tool => {
                let names = self.tools.as_ref().map(|tools| tools.at(id, row.time.secs));
                let names = names.unwrap_or_default();
                if names.is_empty() {
                    tallies.add(None, row);
                }
                for name in names {
                    tallies.add(Some(name), row);
                }
            }
        }
    }

    /// The paths that changes are counted by.
    pub(super) fn paths(&self) -> Vec<MergedPath> {
        self.tallies.iter().filter_map(|(name, _)| MergedPath::from_bytes(name?)).collect()
    }

    /// Prints them, by name; those at paths of `own` together.
    pub(super) fn print(
        &self,
        own: Option<&ToolOwnedFiles>,
        out: &mut Out,
        is_json: bool,
    ) -> Result<(), CliError> {
        let owner = |name: &[u8]| own?.owner(&MergedPath::from_bytes(name)?);
        let tallies = self.tallies.folded(|name| Some(owner(name)?.1.as_bytes().to_vec()));
        for (name, tally) in tallies.iter() {
            if is_json {
                out.json(self.json(name, tally))?;
                continue;
            }
            let whose = name.and_then(owner).map(|(owner, _)| whose(owner));
            let slash = if whose.is_some() { "/" } else { "" };
            let shown = name.map_or_else(|| self.grouping.without().to_owned(), text::name);
            let paths = match self.grouping {
                Grouping::Path if whose.is_none() => String::new(),
                _ => {
                    let paths = text::count(tally.paths(), "path");
                    format!("{paths}{}: ", whose.unwrap_or_default())
                }
            };
            out.line(format_args!(
                "{}  {}  {shown}{slash}  {paths}{}",
                text::time_short(tally.first),
                text::time_short(tally.last),
                ops(tally),
            ))?;
        }
        Ok(())
    }

    fn json(&self, name: Option<&[u8]>, tally: &Tally) -> Map<String, Value> {
        let mut json = text::json("changes");
        json.insert("by".to_owned(), self.grouping.as_str().into());
        match name {
            Some(name) => text::put_path(&mut json, "name", name),
            None => drop(json.insert("name".to_owned(), Value::Null)),
        }
        let ops = tally.ops().map(|(op, count)| (op.as_str().to_owned(), count.into()));
        json.insert("ops".to_owned(), ops.collect::<Map<_, _>>().into());
        json.insert("written_bytes".to_owned(), tally.written_bytes.into());
        if self.grouping != Grouping::Path {
            json.insert("paths".to_owned(), tally.paths().into());
        }
        json.insert("first".to_owned(), text::time(tally.first).into());
        json.insert("last".to_owned(), text::time(tally.last).into());
        json
    }
}

/// How many of each operation: `1 CREATE, 3 WRITE (2.0 KiB)`.
fn ops(tally: &Tally) -> String {
    let ops = tally.ops().map(|(op, count)| format!("{count} {}", op.as_str()));
    let ops = ops.collect::<Vec<_>>().join(", ");
    match tally.written_bytes {
        0 => ops,
        bytes => format!("{ops}, {} written", text::bytes(bytes)),
    }
}
