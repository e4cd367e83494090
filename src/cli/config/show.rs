//! Shows an export: what a client mounts, which clients may, and what it consists of.
//!
//! Structs of the exports file are destructured by name, so that new fields cannot be forgotten.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::checkpoint::{keep_json, keep_words};
use crate::cli::text;
use crate::config::{
    ClientNetworks, Config, ExportConfig, ExportOptions, GuardConfig, GuardRule, IdMap, IdRange,
    MountConfig, QuotaConfig, SquashMode, StoreConfig, TemplateConfig, limits,
};
use crate::pattern::{Pattern, PatternSet};
use crate::vfs::Caller;
use crate::workspace::checkpoints;

/// The path of the export, and a line for each property.
pub(super) fn lines(export: &ExportConfig) -> Vec<String> {
    #[rustfmt::skip]
    let ExportConfig {
        name, path, token: _, is_secret, options, clients, uids, gids, quota, max_file_bytes, hide,
        mounts, guards, template: _, file: _, position: _,
    } = export;
    let mut lines = vec![match path {
        Some(path) => text::name(path.as_str().as_bytes()),
        None => format!("/{name}-TOKEN, with a token that the first start makes"),
    }];
    let mut put = |key: &str, value: &str| lines.push(format!("  {key:<8} {value}"));
    // A secret path begins with the name, and most others equal it.
    let is_told = |name: &str| path.as_ref().is_some_and(|path| path.as_str()[1..] == *name);
    if !is_secret && !is_told(name) {
        put("name", &text::name(name.as_bytes()));
    }
    put("clients", &networks(clients).join(", "));
    put("options", &words(options).join(", "));
    for (key, map) in [("map_uids", uids), ("map_gids", gids)] {
        if let Some(map) = map {
            put(key, &map.ranges().iter().map(range).collect::<Vec<_>>().join(", "));
        }
    }
    let QuotaConfig { bytes, files } = *quota;
    let files = files.map(|files| text::count(files, "file"));
    let quota: Vec<String> = bytes.map(text::bytes).into_iter().chain(files).collect();
    if !quota.is_empty() {
        put("quota", &quota.join(", "));
    }
    if let Some(most) = max_file_bytes {
        put("max_file_bytes", &text::bytes(*most));
    }
    if !hide.is_empty() {
        put("hide", &text::line(patterns(hide).join(", ").as_bytes()));
    }
    let places = mounts.iter().map(|mount| text::name(mount.at.as_str().as_bytes()));
    let places: Vec<String> = places.collect();
    let width = places.iter().map(|place| place.chars().count()).max().unwrap_or(0);
    for (mount, place) in mounts.iter().zip(&places) {
        put("at", &format!("{place:<width$}  {}", source(mount)));
    }
    for guard in guards {
        let path = text::line(guard.path.as_str().as_bytes());
        put("guard", &format!("{path}  {}", text::line(rule(guard).as_bytes())));
    }
    lines
}

/// The path of a template, and a line for each property.
pub(super) fn template_lines(template: &TemplateConfig) -> Vec<String> {
    let mut lines = lines(&template.export);
    let path = text::name(template.to_string().as_bytes());
    let token = if template.has_token { "/TOKEN" } else { "" };
    lines[0] = format!("template {path}{token}");
    for (name, allow) in template.allowed() {
        lines.push(format!("  {:<8} {name} = {}", "allow", text::line(allow.as_bytes())));
    }
    if !template.creates {
        lines.push(format!("  {:<8} no: its sessions exist", "create"));
    }
    if let Some(expire) = template.expire {
        let expire = text::span(expire.as_secs());
        lines.push(format!("  {:<8} {expire} without a use", "expire"));
    }
    lines
}

/// What the file says of the whole server, if it says anything.
pub(super) fn server_lines(config: &Config) -> Vec<String> {
    let Config { exports: _, templates: _, max_open, idle_close, ephemeral_expire } = config;
    let by_default = (limits::DEFAULT_MAX_OPEN, limits::DEFAULT_IDLE_CLOSE);
    let mut lines = Vec::new();
    if (*max_open, *idle_close) != by_default {
        lines.push(format!("  idle_close {}", text::span(idle_close.as_secs())));
        lines.push(format!("  max_open {max_open}"));
    }
    if *ephemeral_expire != limits::DEFAULT_EPHEMERAL_EXPIRE {
        lines.push(format!("  ephemeral_expire {}", text::span(ephemeral_expire.as_secs())));
    }
    if !lines.is_empty() {
        lines.insert(0, "server".to_owned());
    }
    lines
}

/// The template as JSON.
pub(super) fn template_json(template: &TemplateConfig) -> Map<String, Value> {
    let mut object = json(&template.export);
    object.insert("type".to_owned(), "template_config".into());
    let allow = template.allowed().map(|(name, allow)| (name.to_owned(), allow.into()));
    object.insert("allow".to_owned(), Value::Object(allow.collect()));
    object.insert("create".to_owned(), template.creates.into());
    let expire = template.expire.map(|expire| expire.as_secs());
    object.insert("expire".to_owned(), expire.into());
    object
}

/// A range of an id map: ids of the client and of the server.
fn range(range: &IdRange) -> String {
    let IdRange { client, server, count } = *range;
    // The file is checked: no range exceeds the last id.
    let last = |first: u32| first.saturating_add(count.saturating_sub(1));
    match count {
        1 => format!("{client}={server}"),
        _ => format!("{client}-{}={server}-{}", last(client), last(server)),
    }
}

/// The session and the base of a mount, with its options.
fn source(mount: &MountConfig) -> String {
    #[rustfmt::skip]
    let MountConfig {
        at: _, store, base, hide: _, keep_originals, keep_log, checkpoints: mode,
        keep_checkpoints, subtree, is_read_only, is_shared, position: _,
    } = mount;
    let path = |path: &Path| text::name(path.as_os_str().as_encoded_bytes());
    let (mut description, chunk_size) = match store {
        StoreConfig::Session { file, chunk_size } => (path(file), *chunk_size),
        StoreConfig::Database { url, chunk_size } => {
            (text::name(url.to_string().as_bytes()), *chunk_size)
        }
        StoreConfig::Memory => ("memory".to_owned(), None),
    };
    if let Some(base) = base {
        description.push_str(&format!(" over {}", path(base)));
    }
    if !subtree.is_root() {
        description.push_str(&format!(", subtree {}", text::name(subtree.as_str().as_bytes())));
    }
    if let Some(bytes) = chunk_size {
        description.push_str(&format!(", chunks of {}", text::count(bytes, "byte")));
    }
    if let Some(bytes) = keep_originals {
        description.push_str(&format!(", originals up to {}", text::bytes(*bytes)));
    }
    if let Some(keep) = keep_log {
        let changes = keep.changes.map(|changes| text::count(changes, "change"));
        let days = keep.days.map(|days| text::count(days, "day"));
        let both: Vec<_> = changes.into_iter().chain(days).collect();
        description.push_str(&format!(", log of {}", both.join(" or ")));
    }
    if let Some(mode) = mode {
        description.push_str(&format!(", checkpoints {mode}"));
    }
    if let Some(keep) = keep_checkpoints {
        let keep = checkpoints::keep_of(*keep);
        description.push_str(&format!(", {}", text::line(keep_words(keep).as_bytes())));
    }
    if *is_read_only {
        description.push_str(", read-only");
    }
    if *is_shared {
        description.push_str(", shared");
    }
    description
}

fn rule(guard: &GuardConfig) -> String {
    match &guard.rule {
        GuardRule::Json(None) => "JSON".to_owned(),
        GuardRule::Json(Some(schema)) => format!("JSON of {}", schema.display()),
        GuardRule::JsonLines(None) => "JSON Lines".to_owned(),
        GuardRule::JsonLines(Some(schema)) => format!("JSON Lines of {}", schema.display()),
        GuardRule::Program { argv, timeout } => {
            format!("{} ({} s at most)", argv.join(" "), timeout.as_secs_f64())
        }
    }
}

fn networks(clients: &ClientNetworks) -> Vec<String> {
    clients.networks().map(ToString::to_string).collect()
}

fn patterns(hide: &PatternSet) -> Vec<&str> {
    hide.patterns().iter().map(Pattern::as_str).collect()
}

/// The options as words of exports(5). Anonymous ids appear only if they are not the default.
fn words(options: &ExportOptions) -> Vec<String> {
    #[rustfmt::skip]
    let ExportOptions {
        is_read_only, is_secure, squash, anon_uid, anon_gid, takes_sys, takes_none,
    } = *options;
    let mut words = vec![if is_read_only { "ro" } else { "rw" }.to_owned()];
    words.push(if is_secure { "secure" } else { "insecure" }.to_owned());
    words.push(
        match squash {
            SquashMode::NoRoot => "no_root_squash",
            SquashMode::Root => "root_squash",
            SquashMode::All => "all_squash",
        }
        .to_owned(),
    );
    for (word, id) in [("anonuid", anon_uid), ("anongid", anon_gid)] {
        if id != Caller::NOBODY {
            words.push(format!("{word}={id}"));
        }
    }
    words.push(match (takes_sys, takes_none) {
        (true, true) => "sec=sys:none".to_owned(),
        (false, _) => "sec=none".to_owned(),
        (true, false) => "sec=sys".to_owned(),
    });
    words
}

/// The export as JSON.
pub(super) fn json(export: &ExportConfig) -> Map<String, Value> {
    let mut object = text::json("export_config");
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("name", export.name.as_str().into());
    put("path", export.path.as_ref().map(|path| path.as_str()).into());
    put("is_secret", export.is_secret.into());
    put("clients", networks(&export.clients).into());
    put("options", words(&export.options).into());
    put("map_uids", ranges_json(export.uids.as_ref()));
    put("map_gids", ranges_json(export.gids.as_ref()));
    put("max_bytes", export.quota.bytes.into());
    put("max_files", export.quota.files.into());
    put("max_file_bytes", export.max_file_bytes.into());
    put("hide", patterns(&export.hide).into());
    put("mounts", export.mounts.iter().map(mount_json).collect());
    put("guards", export.guards.iter().map(guard_json).collect());
    text::put_path(&mut object, "file", export.file.as_os_str().as_encoded_bytes());
    object
}

/// The ranges of a map; null if there is no map.
fn ranges_json(map: Option<&IdMap>) -> Value {
    let range_json = |range: &IdRange| {
        let IdRange { client, server, count } = range;
        serde_json::json!({ "client": client, "server": server, "count": count })
    };
    map.map(|map| map.ranges().iter().map(range_json).collect::<Vec<_>>()).into()
}

fn mount_json(mount: &MountConfig) -> Value {
    let mut object = Map::new();
    let mut put_path = |key: &str, path: Option<&Path>| match path {
        Some(path) => text::put_path(&mut object, key, path.as_os_str().as_encoded_bytes()),
        None => drop(object.insert(key.to_owned(), Value::Null)),
    };
    let url = mount.url().map(|url| PathBuf::from(url.to_string()));
    put_path("session", mount.session().or(url.as_ref()).map(AsRef::as_ref));
    put_path("base", mount.base.as_deref());
    object.insert("at".to_owned(), mount.at.as_str().into());
    object.insert("subtree".to_owned(), mount.subtree.as_str().into());
    object.insert("chunk_size".to_owned(), mount.store.chunk_size().into());
    object.insert("keep_originals".to_owned(), mount.keep_originals.into());
    let keep = mount.keep_log.as_ref();
    object.insert("keep_log_changes".to_owned(), keep.and_then(|keep| keep.changes).into());
    object.insert("keep_log_days".to_owned(), keep.and_then(|keep| keep.days).into());
    let mode = mount.checkpoints.map(|mode| mode.to_string());
    object.insert("checkpoints".to_owned(), mode.into());
    let keep = mount.keep_checkpoints.map(|keep| keep_json(checkpoints::keep_of(keep)));
    object.insert("keep_checkpoints".to_owned(), keep.into());
    object.insert("read_only".to_owned(), mount.is_read_only.into());
    object.insert("shared".to_owned(), mount.is_shared.into());
    Value::Object(object)
}

fn guard_json(guard: &GuardConfig) -> Value {
    let mut object = Map::new();
    object.insert("path".to_owned(), guard.path.as_str().into());
    object.insert("rule".to_owned(), rule(guard).into());
    Value::Object(object)
}
