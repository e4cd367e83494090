//! An export as its owner is to see it: what a client mounts, who may, and what it is made of.

use std::path::Path;

use serde_json::{Map, Value};

use crate::cli::text;
use crate::config::{
    ExportConfig, GuardConfig, GuardRule, MountConfig, Options, SquashMode, StoreConfig,
};
use crate::vfs::Caller;

/// Lines for people: the path, and below it what there is to say of the export.
pub(super) fn lines(export: &ExportConfig) -> Vec<String> {
    let mut lines = vec![match &export.path {
        Some(path) => text::name(path.as_str().as_bytes()),
        None => format!("/{}-TOKEN, with a token that the first start makes", export.name),
    }];
    let mut put = |key: &str, value: &str| lines.push(format!("  {key:<8} {value}"));
    put("clients", &networks(export).join(", "));
    put("options", &words(&export.options).join(", "));
    let bytes = export.quota.bytes.map(text::bytes);
    let files = export.quota.files.map(|files| format!("{files} files"));
    let quota: Vec<String> = bytes.into_iter().chain(files).collect();
    if !quota.is_empty() {
        put("quota", &quota.join(", "));
    }
    if !export.hide.is_empty() {
        put("hide", &text::line(patterns(export).join(", ").as_bytes()));
    }
    let places = export.mounts.iter().map(|mount| text::name(mount.at.as_str().as_bytes()));
    let places: Vec<String> = places.collect();
    let width = places.iter().map(|place| place.chars().count()).max().unwrap_or(0);
    for (mount, place) in export.mounts.iter().zip(&places) {
        put("at", &format!("{place:<width$}  {}", source(mount)));
    }
    for guard in &export.guards {
        let path = text::line(guard.path.as_str().as_bytes());
        put("guard", &format!("{path}  {}", text::line(rule(guard).as_bytes())));
    }
    lines
}

/// Where the changes of a mount go, and what shows through.
fn source(mount: &MountConfig) -> String {
    let path = |path: &Path| text::name(path.as_os_str().as_encoded_bytes());
    let mut said = match &mount.store {
        StoreConfig::Session { file, .. } => path(file),
        StoreConfig::Memory => "memory".to_owned(),
    };
    if let Some(base) = &mount.base {
        said.push_str(&format!(" over {}", path(base)));
    }
    if !mount.subtree.is_root() {
        said.push_str(&format!(", subtree {}", text::name(mount.subtree.as_str().as_bytes())));
    }
    if mount.is_read_only {
        said.push_str(", read-only");
    }
    said
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

fn networks(export: &ExportConfig) -> Vec<String> {
    export.clients.networks().map(ToString::to_string).collect()
}

fn patterns(export: &ExportConfig) -> Vec<&str> {
    export.hide.patterns().iter().map(crate::vfs::Pattern::as_str).collect()
}

/// The words of exports(5) that say all of it; anonymous ids only where they are not as usual.
fn words(options: &Options) -> Vec<String> {
    let mut words = vec![if options.is_read_only { "ro" } else { "rw" }.to_owned()];
    words.push(if options.is_secure { "secure" } else { "insecure" }.to_owned());
    words.push(
        match options.squash {
            SquashMode::Nobody => "no_root_squash",
            SquashMode::Root => "root_squash",
            SquashMode::All => "all_squash",
        }
        .to_owned(),
    );
    for (word, id) in [("anonuid", options.anon_uid), ("anongid", options.anon_gid)] {
        if id != Caller::NOBODY {
            words.push(format!("{word}={id}"));
        }
    }
    words.push(match (options.takes_sys, options.takes_none) {
        (true, true) => "sec=sys:none".to_owned(),
        (false, _) => "sec=none".to_owned(),
        (true, false) => "sec=sys".to_owned(),
    });
    words
}

/// The same for programs.
pub(super) fn json(export: &ExportConfig) -> Map<String, Value> {
    let mut object = text::json("export");
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("name", export.name.as_str().into());
    put("path", export.path.as_ref().map(|path| path.as_str()).into());
    put("is_secret", export.is_secret.into());
    put("clients", networks(export).into());
    put("options", words(&export.options).into());
    put("max_bytes", export.quota.bytes.into());
    put("max_files", export.quota.files.into());
    put("hide", patterns(export).into());
    put("mounts", export.mounts.iter().map(mount_json).collect());
    put("guards", export.guards.iter().map(guard_json).collect());
    object
}

fn mount_json(mount: &MountConfig) -> Value {
    let mut object = Map::new();
    let mut put_path = |key: &str, path: Option<&Path>| match path {
        Some(path) => text::put_path(&mut object, key, path.as_os_str().as_encoded_bytes()),
        None => drop(object.insert(key.to_owned(), Value::Null)),
    };
    put_path("session", mount.session().map(AsRef::as_ref));
    put_path("base", mount.base.as_deref());
    object.insert("at".to_owned(), mount.at.as_str().into());
    object.insert("subtree".to_owned(), mount.subtree.as_str().into());
    object.insert("read_only".to_owned(), mount.is_read_only.into());
    Value::Object(object)
}

fn guard_json(guard: &GuardConfig) -> Value {
    let mut object = Map::new();
    object.insert("path".to_owned(), guard.path.as_str().into());
    object.insert("rule".to_owned(), rule(guard).into());
    Value::Object(object)
}
