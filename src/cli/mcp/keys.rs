//! The tools for the session's keys and values.

use jiff::Timestamp;
use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::changing::ChangingCall;
use super::limits::MAX_KV_BYTES;
use super::results::{BoundedList, McpOutput};
use super::session::McpSession;
use crate::cli::error::CliError;
use crate::cli::{agent_values, kv, text};
use crate::delta::sqlite::AgentAccess;
use crate::inspect::kv::KeyValues;

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct KeyArgs {
    /// The key.
    key: String,
}

pub(super) fn kv_get(session: &McpSession, args: &KeyArgs) -> Result<McpOutput, CliError> {
    let kept = KeyValues::open(&session.source.session, AgentAccess::Read)?;
    let row = kept.get(args.key.as_bytes())?.ok_or_else(|| missing(&args.key))?;
    if row.value.len() > MAX_KV_BYTES {
        let (key, length) = (&args.key, row.value.len());
        let what = format!("{key}: its value has {length} bytes, more than {MAX_KV_BYTES}");
        return Err(CliError::new(what).with_hint("its user can print it with `acetate kv get`"));
    }
    Ok(McpOutput::Json(kv::object(&row)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct KeyListArgs {
    /// Only keys that begin with this.
    #[serde(default)]
    prefix: String,
    /// Only keys that sort after this one: the last key of the result before.
    after: Option<String>,
    /// How many keys: at most 1000. By default 200.
    limit: Option<usize>,
}

pub(super) fn kv_list(session: &McpSession, args: &KeyListArgs) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let kept = KeyValues::open(&session.source.session, AgentAccess::Read)?;
    for key in kept.keys(args.prefix.as_bytes())? {
        if args.after.as_ref().is_some_and(|after| *key.key <= *after.as_bytes()) {
            continue;
        }
        let mut entry = JsonObject::new();
        text::put_path(&mut entry, "key", &key.key);
        entry.insert("value_bytes".to_owned(), key.value_bytes.into());
        agent_values::put_time(&mut entry, "updated_at", key.updated_at);
        if !list.push(entry) {
            break;
        }
    }
    let mut json = JsonObject::new();
    list.put(&mut json, "keys");
    Ok(McpOutput::Json(json))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct KeySetArgs {
    /// The key.
    key: String,
    /// The value, any JSON: at most 1048576 bytes.
    value: Value,
}

pub(super) fn kv_set(changing: &mut ChangingCall<'_>, args: KeySetArgs) -> Result<(), CliError> {
    let value = args.value.to_string();
    if value.len() > MAX_KV_BYTES {
        let length = value.len();
        let what = format!("value: {length} bytes, more than {MAX_KV_BYTES}");
        return Err(CliError::new(what).with_hint("keep it in a file"));
    }
    changing.checkpoint()?;
    let kept = KeyValues::open(&changing.session.source.session, AgentAccess::Write)?;
    kept.set(&args.key, &value, Timestamp::now().as_second())?;
    changing.put("key", args.key);
    Ok(())
}

pub(super) fn kv_delete(changing: &mut ChangingCall<'_>, args: KeyArgs) -> Result<(), CliError> {
    changing.checkpoint()?;
    let kept = KeyValues::open(&changing.session.source.session, AgentAccess::Write)?;
    kept.remove(args.key.as_bytes())?.ok_or_else(|| missing(&args.key))?;
    changing.put("key", args.key);
    Ok(())
}

fn missing(key: &str) -> CliError {
    CliError::new(format_args!("{key}: no such key")).with_hint("kv_list lists the keys")
}
