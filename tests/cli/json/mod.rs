//! docs/json-schema.json describes each object that a command prints with `--json`.

mod apply;
mod changes;
mod looks;
mod served;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Output;

use acetate::cli::command;
use clap::Command;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::program;
use crate::support::skip::skip;

/// The definitions of the schema, by name.
fn definitions() -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json-schema.json");
    let schema = std::fs::read_to_string(path).unwrap();
    let mut schema: Value = serde_json::from_str(&schema).unwrap();
    serde_json::from_value(schema["$defs"].take()).unwrap()
}

/// What the commands printed, and which commands.
struct Seen {
    validators: BTreeMap<String, Validator>,
    types: BTreeSet<String>,
    commands: BTreeSet<String>,
    /// Types and commands that cannot be had here.
    skipped: BTreeSet<String>,
}

impl Seen {
    fn new() -> Self {
        let definitions = definitions();
        let validator = |name: &String| {
            let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": definitions });
            (name.clone(), jsonschema::draft202012::new(&schema).unwrap())
        };
        let validators = definitions.keys().filter(|name| *name != "version").map(validator);
        Self {
            validators: validators.collect(),
            types: BTreeSet::new(),
            commands: BTreeSet::new(),
            skipped: BTreeSet::new(),
        }
    }

    /// Leaves a type or command out, and says so.
    fn skip(&mut self, name: &str, why: &str) {
        skip(&format!("{name}: {why}"));
        self.skipped.insert(name.to_owned());
    }

    /// Runs a command with `--json`, which exits with `code`, and checks what it prints.
    #[track_caller]
    fn run(&mut self, dir: &Path, code: i32, args: &[&str]) -> Vec<Value> {
        let output = program::run(dir, &self.with_json(args));
        self.check(code, args, output)
    }

    /// The arguments of a command that counts as run.
    fn with_json<'a>(&mut self, args: &[&'a str]) -> Vec<&'a str> {
        self.commands.insert(name(args));
        [args, &["--json"]].concat()
    }

    #[track_caller]
    fn check(&mut self, code: i32, args: &[&str], output: Output) -> Vec<Value> {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let objects: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!objects.is_empty(), "{args:?} prints nothing");
        objects.iter().for_each(|object| self.check_object(object));
        objects
    }

    #[track_caller]
    fn check_object(&mut self, object: &Value) {
        let name = object["type"].as_str().expect("a type");
        let validator = self.validators.get(name);
        let validator = validator.unwrap_or_else(|| panic!("{name} is not in the schema"));
        if let Err(error) = validator.validate(object) {
            panic!("{name}: {error} at {}: {object}", error.instance_path());
        }
        self.note(object);
    }

    /// Notes the types of an object and of those in it.
    fn note(&mut self, value: &Value) {
        match value {
            Value::Object(object) => {
                if let (Some(1), Some(Value::String(name))) =
                    (object.get("v").and_then(Value::as_u64), object.get("type"))
                {
                    self.types.insert(name.clone());
                }
                object.values().for_each(|value| self.note(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.note(value)),
            _ => {}
        }
    }
}

/// The command that arguments name, with the commands in it.
fn name(args: &[&str]) -> String {
    let mut at = command();
    let mut words = Vec::new();
    for word in args {
        let Some(inner) = at.find_subcommand(word) else { break };
        words.push(*word);
        at = inner.clone();
    }
    words.join(" ")
}

/// The commands that have `--json`.
fn with_json(command: &Command, before: &str, found: &mut BTreeSet<String>) {
    for inner in command.get_subcommands() {
        let name = format!("{before} {}", inner.get_name());
        let name = name.trim_start();
        if inner.get_arguments().any(|arg| arg.get_long() == Some("json")) {
            found.insert(name.to_owned());
        }
        with_json(inner, name, found);
    }
}

#[test]
fn the_schema_has_what_each_command_prints_and_nothing_else() {
    let mut seen = Seen::new();
    looks::run(&mut seen);
    changes::run(&mut seen);
    sessions::run(&mut seen);
    apply::run(&mut seen);
    served::run(&mut seen);
    served::run_mounts(&mut seen);
    let mut types: BTreeSet<String> = seen.validators.keys().cloned().collect();
    let mut commands = BTreeSet::new();
    with_json(&command(), "", &mut commands);
    types.retain(|name| !seen.skipped.contains(name));
    commands.retain(|name| !seen.skipped.contains(name));
    assert_eq!(seen.types, types, "printed, and in the schema");
    assert_eq!(seen.commands, commands, "run here, and with --json");
}

/// Calls `check` with each schema of an object that names its keys.
fn objects(value: &Value, at: &str, check: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(object) => {
            if object.contains_key("properties") {
                check(at, value);
            }
            object.iter().for_each(|(key, value)| objects(value, &format!("{at}/{key}"), check));
        }
        Value::Array(values) => values.iter().for_each(|value| objects(value, at, check)),
        _ => {}
    }
}

#[test]
fn the_schema_allows_no_other_key_and_describes_each() {
    for (name, definition) in definitions() {
        assert!(definition["description"].is_string(), "{name}");
        objects(&definition, &name, &mut |at, schema| {
            assert_eq!(schema["additionalProperties"], false, "{at}");
            for (key, property) in schema["properties"].as_object().unwrap() {
                let says = ["description", "const", "$ref", "items"];
                let is_said = says.iter().any(|says| property.get(says).is_some());
                assert!(is_said, "{at}/{key}");
            }
        });
    }
}
