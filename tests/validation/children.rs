//! Content is checked against schemas in processes that are bounded, killed and started again.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::validation::{
    ChildLimits, ExportResources, GuardLimits, GuardResources, Guards, Validator,
};

use crate::support::validators::{check, command, export, guards_with_schema, json_schema, schema};

/// A node type with a branch for each `type`, as schemas of trees have it.
const TREE: &str = r##"{ "$ref": "#/$defs/node", "$defs": { "node": { "anyOf": [
    {"type": "object", "required": ["type"], "properties": {
        "type": {"const": "a"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
    {"type": "object", "required": ["type"], "properties": {
        "type": {"const": "b"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
    {"type": "object", "required": ["type"], "properties": {
        "type": {"const": "c"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
    {"type": "object", "required": ["type"], "properties": {
        "type": {"const": "d"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
]}}}"##;

/// A pattern that is tried in 2^n ways on n characters, and is found in the end.
const SLOW: &str = r#"{"items": {"pattern": "^(?:(?:a|a)+(?=c)c|a)"}}"#;

fn nested(levels: usize, leaf: &str) -> Vec<u8> {
    let (open, close) = (r#"{"type":"a","children":["#, "]}");
    let leaf = format!(r#"{{"type":"{leaf}"}}"#);
    [open.repeat(levels), leaf, close.repeat(levels)].concat().into_bytes()
}

/// Takes [`SLOW`] minutes.
fn slow_text() -> Vec<u8> {
    format!("[{}\"a\"]", r#""aaaaaaaaaaaaaaaa","#.repeat(20_000)).into_bytes()
}

fn limits(child: ChildLimits) -> GuardLimits {
    GuardLimits { checks: 2, child, ..GuardLimits::default() }
}

fn resources(child: ChildLimits) -> Arc<GuardResources> {
    GuardResources::new(limits(child), Some(command()))
}

/// The processes with this bound of memory, which is what tells a test's from others.
fn processes(child: ChildLimits) -> Vec<String> {
    let line = format!("acetate\0validator-child\0{}\0", child.memory_bytes);
    let found = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let read = std::fs::read(entry.path().join("cmdline"));
        read.is_ok_and(|read| read.starts_with(line.as_bytes()))
    });
    found.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

/// Waits until something is so.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to that");
}

async fn reason(export: &ExportResources, validator: &Validator, content: &[u8]) -> String {
    check(export, validator, content).await.unwrap_err().reason
}

#[tokio::test]
async fn a_text_that_is_nested_in_a_recursive_schema_is_answered_within_the_bound() {
    let child = ChildLimits { memory_bytes: 500 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    let tree = json_schema(TREE);
    for levels in [2, 11, 30, 60] {
        let start = Instant::now();
        assert_eq!(check(&export, &tree, &nested(levels, "d")).await, Ok(()), "{levels}");
        let reason = reason(&export, &tree, &nested(levels, "x")).await;
        let is_said = ["does not fit the schema", "under any of the schemas", "…"];
        assert!(is_said.iter().any(|part| reason.contains(part)), "{reason}");
        assert!(start.elapsed() < Duration::from_secs(10), "{levels}: {:?}", start.elapsed());
    }
}

/// [`TREE`] with this many branches.
fn tree(branches: &[&str]) -> String {
    let branches = branches.iter().map(|name| {
        format!(
            r##"{{"type": "object", "required": ["type"], "properties": {{
                "children": {{"type": "array", "items": {{"$ref": "#"}}}},
                "type": {{"const": "{name}"}}}}}}"##
        )
    });
    format!(r#"{{"anyOf": [{}]}}"#, branches.collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn what_is_not_warned_of_is_checked_fast() {
    let child = ChildLimits { memory_bytes: 508 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    for (branches, is_fast) in [(&["d", "c", "a"][..], true), (&["d", "a"], false)] {
        let validator = json_schema(&tree(branches));
        assert_eq!(validator.recursion().is_none(), is_fast, "{branches:?}");
        let start = Instant::now();
        let checked = check(&export, &validator, &nested(30, "d")).await;
        println!("{branches:?}: {:?} {checked:?}", start.elapsed());
        if is_fast {
            assert_eq!(checked, Ok(()));
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test]
async fn a_text_that_takes_too_long_is_refused_and_its_process_killed() {
    let check_time = Duration::from_millis(700);
    let child = ChildLimits { check_time, memory_bytes: 501 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    let (slow, start) = (json_schema(SLOW), Instant::now());
    assert_eq!(reason(&export, &slow, &slow_text()).await, "cannot be checked within 700ms");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(processes(child), [""; 0]);
    assert_eq!(check(&export, &slow, b"[\"a\"]").await, Ok(()), "another process does it");
}

#[tokio::test]
async fn a_text_that_takes_too_much_memory_is_refused() {
    let child = ChildLimits { memory_bytes: 96 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    let any = json_schema(r#"{"type": "array"}"#);
    let large = format!("[{}0]", r#"{"":0},"#.repeat(300_000)).into_bytes();
    let said = reason(&export, &any, &large).await;
    assert_eq!(said, "cannot be checked within 96 MiB of memory");
    assert_eq!(check(&export, &any, b"[]").await, Ok(()), "another process does it");
}

#[tokio::test]
async fn a_process_that_is_killed_is_started_again() {
    let child = ChildLimits {
        check_time: Duration::from_secs(100),
        memory_bytes: 502 << 20,
        ..ChildLimits::default()
    };
    let export = export(&resources(child));
    let (any, slow) = (json_schema("{}"), Arc::new(json_schema(SLOW)));
    assert_eq!(check(&export, &any, b"1").await, Ok(()));
    let first = processes(child);
    assert_eq!(first.len(), 1, "one for one text at a time");
    assert_eq!(check(&export, &any, b"2").await, Ok(()));
    assert_eq!(processes(child), first, "it lives long");
    // While it does nothing: the next text does not suffer.
    kill(&first[0]);
    assert_eq!(check(&export, &any, b"3").await, Ok(()));
    let second = processes(child);
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    // In the middle of a text, which another process gets, and then of that: it may be the text.
    let middle = {
        let (export, slow) = (Arc::clone(&export), Arc::clone(&slow));
        tokio::spawn(async move { check(&export, &slow, &slow_text()).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill(&second[0]);
    until(|| processes(child).iter().any(|pid| *pid != second[0])).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for pid in processes(child) {
        kill(&pid);
    }
    let refused = middle.await.unwrap().unwrap_err().reason;
    assert_eq!(refused, "cannot be checked within 502 MiB of memory");
    assert_eq!(check(&export, &any, b"4").await, Ok(()));
}

#[tokio::test]
async fn slow_texts_of_one_export_do_not_keep_those_of_another_waiting() {
    let check_time = Duration::from_secs(4);
    let child = ChildLimits { check_time, memory_bytes: 503 << 20, ..ChildLimits::default() };
    let all = resources(child);
    let (first, second) = (export(&all), export(&all));
    let slow = Arc::new(json_schema(SLOW));
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (first, slow) = (Arc::clone(&first), Arc::clone(&slow));
            tokio::spawn(async move { check(&first, &slow, &slow_text()).await })
        })
        .collect();
    until(|| !processes(child).is_empty()).await;
    let (any, start) = (json_schema("{}"), Instant::now());
    for _ in 0..20 {
        assert_eq!(check(&second, &any, b"1").await, Ok(()));
    }
    assert!(start.elapsed() < check_time, "{:?}", start.elapsed());
    assert!(processes(child).len() <= 2, "no more than the texts at a time");
    assert!(tasks.iter().any(|task| !task.is_finished()), "they were not slow");
    tasks.iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn no_process_runs_without_a_schema_and_all_end_with_the_last() {
    let child = ChildLimits { memory_bytes: 504 << 20, ..ChildLimits::default() };
    let all = resources(child);
    let plain = all.export(&Guards::default()).unwrap();
    assert_eq!(check(&plain, &Validator::json(), b"{}").await, Ok(()));
    assert_eq!(check(&plain, &Validator::jsonl(), b"{}\n1").await, Ok(()));
    assert_eq!(processes(child), [""; 0]);
    let with_schema = export(&all);
    assert_eq!(processes(child), [""; 0], "not before there is something to check");
    assert_eq!(check(&with_schema, &json_schema("{}"), b"{}").await, Ok(()));
    assert_eq!(processes(child).len(), 1);
    drop(with_schema);
    until(|| processes(child).is_empty()).await;
}

#[tokio::test]
async fn a_process_that_checked_much_does_not_keep_its_memory() {
    let child = ChildLimits { memory_bytes: 505 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    let large = format!("[{}0]", "0,".repeat(400_000)).into_bytes();
    assert_eq!(check(&export, &json_schema("{}"), &large).await, Ok(()));
    until(|| processes(child).is_empty()).await;
}

#[tokio::test]
async fn many_schemas_are_each_asked_for_their_own_texts() {
    let child = ChildLimits { memory_bytes: 506 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    // Together they are more than a process keeps.
    let schemas: Vec<Validator> = (0..5)
        .map(|number| {
            let padding = "x".repeat(300 << 10);
            json_schema(&format!(r#"{{"const": {number}, "description": "{padding}"}}"#))
        })
        .collect();
    for (number, schema) in schemas.iter().enumerate().chain(schemas.iter().enumerate()) {
        assert_eq!(check(&export, schema, number.to_string().as_bytes()).await, Ok(()));
        let other = (number + 1).to_string();
        assert_eq!(
            reason(&export, schema, other.as_bytes()).await,
            format!("const: {number} was expected: {other}")
        );
    }
    assert_eq!(processes(child).len(), 1);
}

#[tokio::test]
async fn a_line_that_is_refused_is_named() {
    let child = ChildLimits { memory_bytes: 507 << 20, ..ChildLimits::default() };
    let export = export(&resources(child));
    let (_dir, file) = schema(TREE);
    let lines = Validator::jsonl_schema(&file).unwrap();
    let bad = [b"{\"type\":\"a\"}\n\n".to_vec(), nested(40, "x"), b"\n".to_vec()].concat();
    let refused = check(&export, &lines, &bad).await.unwrap_err();
    assert_eq!(refused.line, Some(3), "{refused}");
}

#[tokio::test]
async fn nothing_is_accepted_where_no_process_starts() {
    let none = acetate::validation::ValidatorCommand::new("/no/such/program");
    let export = export(&GuardResources::new(GuardLimits::default(), Some(none)));
    let said = reason(&export, &json_schema("{}"), b"{}").await;
    assert!(said.starts_with("cannot be checked: no validator process starts"), "{said}");
    let none = acetate::validation::ValidatorCommand::new("/bin/false");
    let export = self::export(&GuardResources::new(GuardLimits::default(), Some(none)));
    let said = reason(&export, &json_schema("{}"), b"{}").await;
    assert!(said.starts_with("cannot be checked: the validator process ended"), "{said}");
}

#[test]
fn an_export_with_a_schema_is_refused_where_no_program_is_named() {
    let none = GuardResources::new(GuardLimits::default(), None);
    assert!(none.export(&guards_with_schema()).is_err());
    assert!(none.export(&Guards::default()).is_ok());
}

#[test]
fn a_process_ends_by_itself_where_its_server_is_gone() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_acetate"));
    command.args(["validator-child", "536870912", "1000"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (tag, data) in [(1, slow_text().as_slice()), (3, SLOW.as_bytes())] {
        let (id, length) = (7_u64.to_be_bytes(), (data.len() as u32).to_be_bytes());
        stdin.write_all(&[&[tag][..], &id, &length, data].concat()).unwrap();
    }
    // As far as the server was when it was killed.
    drop(stdin);
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!child.wait().unwrap().success(), "it was in the middle of a text");
}
