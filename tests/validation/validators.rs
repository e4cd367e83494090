//! JSON and JSON Lines, with and without a schema.

use acetate::validation::{MAX_LINE_BYTES, Validator};

use crate::support::validators::{check_shared, schema};

const FRAGMENT: &str = r##"{
  "type": "object", "required": ["kind"], "additionalProperties": false,
  "properties": { "kind": { "enum": ["rule", "fact"] }, "text": { "$ref": "#/$defs/text" } },
  "$defs": { "text": { "type": "string", "maxLength": 5 } }
}"##;

#[track_caller]
fn accepts(validator: &Validator, content: &[u8]) {
    let outcome = check_shared(validator, content);
    assert_eq!(outcome, Ok(()), "{}", content.escape_ascii());
}

/// The line and the reason of a refusal.
#[track_caller]
fn refuses(validator: &Validator, content: &[u8]) -> (Option<u64>, String) {
    let Err(violation) = check_shared(validator, content) else {
        panic!("accepted: {}", content[..content.len().min(200)].escape_ascii());
    };
    (violation.line, violation.reason)
}

#[test]
fn json_lines_are_one_value_a_line() {
    let jsonl = Validator::jsonl();
    for good in [
        &b""[..],
        b"\n",
        b"{}",
        b"{}\n",
        b"{\"a\": 1}\r\n[2]\r\n",
        b"1\n\n \t\r\n\"zwei\"\nnull",
        "\"Grüße 🦀\"\n".as_bytes(),
        b"123456789012345678901234567890.5e999\n",
        br#""\u00e9\ud83e\udd80""#,
    ] {
        accepts(&jsonl, good);
    }
    for (bad, line, part) in [
        (&b"{}\n{\n{}\n"[..], 2, "EOF while parsing an object, at column 1"),
        (b"{}\n\n[1,]\n", 3, "trailing comma"),
        (b"{} {}\n", 1, "trailing characters, at column 4"),
        (b"1\n2\nx", 3, "expected value"),
        (b"\"\xff\"\n", 1, "invalid unicode code point"),
        (br#""\ud800""#, 1, "hex escape"),
        (b"\xef\xbb\xbf{}\n", 1, "expected value"),
        (b"{}\n\0\0\0\n", 2, "expected value"),
        (b"{}\r{}\n", 1, "trailing characters"),
    ] {
        let (at, reason) = refuses(&jsonl, bad);
        assert_eq!(at, Some(line), "{}: {reason}", bad.escape_ascii());
        assert!(reason.contains(part), "{}: {reason}", bad.escape_ascii());
    }
}

#[test]
fn a_line_has_a_bound() {
    let jsonl = Validator::jsonl();
    let mut longest = vec![b' '; MAX_LINE_BYTES - 1];
    longest.push(b'1');
    longest.push(b'\n');
    accepts(&jsonl, &longest);
    longest.insert(0, b' ');
    longest.splice(0..0, *b"1\n");
    let (line, reason) = refuses(&jsonl, &longest);
    assert_eq!((line, reason.as_str()), (Some(2), "the line is over 1048576 bytes"));
}

#[test]
fn nesting_has_a_bound() {
    let nested = |levels| ["[".repeat(levels), "]".repeat(levels)].concat().into_bytes();
    for validator in [Validator::jsonl(), Validator::json()] {
        accepts(&validator, &nested(127));
        let (_, reason) = refuses(&validator, &nested(100_000));
        assert!(reason.contains("recursion limit"), "{reason}");
    }
}

#[test]
fn a_json_document_is_one_value() {
    let json = Validator::json();
    accepts(&json, b" {\"a\":\n [1, 2.50]}\n");
    accepts(&json, b"null");
    assert_eq!(refuses(&json, b""), (None, "not JSON: the file is empty".to_owned()));
    let (line, reason) = refuses(&json, b"{\n\"a\": 1\n\"b\": 2}\n");
    assert_eq!((line, reason.as_str()), (Some(3), "not JSON: expected `,` or `}`, at column 1"));
    assert_eq!(refuses(&json, b"{}\n{}\n").0, Some(2));
}

#[test]
fn a_schema_says_what_a_line_may_be() {
    let (_dir, file) = schema(FRAGMENT);
    let fragments = Validator::jsonl_schema(&file).unwrap();
    accepts(&fragments, b"{\"kind\": \"rule\", \"text\": \"abc\"}\n{\"kind\": \"fact\"}");
    for (bad, part) in [
        (&b"{\"kind\": \"rule\"}\n{}\n"[..], "\"kind\" is a required property"),
        (b"\n{\"kind\": \"no\"}\n", "enum at /kind: value is not one of"),
        (
            b"\n{\"kind\": \"rule\", \"text\": \"abcdef\"}\n",
            "maxLength at /text: value is longer than 5 characters: \"abcdef\"",
        ),
        (b"\n{\"kind\": \"rule\", \"more\": 1}\n", "('more' was unexpected)"),
        (b"\n{\n", "not JSON: EOF"),
    ] {
        let (line, reason) = refuses(&fragments, bad);
        assert_eq!(line, Some(2), "{reason}");
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn a_schema_says_what_a_document_may_be() {
    let (_dir, file) = schema(FRAGMENT);
    let document = Validator::json_schema(&file).unwrap();
    accepts(&document, b"{\n  \"kind\": \"rule\"\n}\n");
    let (line, reason) = refuses(&document, b"{\"kind\": 3}");
    assert_eq!(line, None);
    assert!(reason.starts_with("enum at /kind: ") && reason.ends_with(": 3"), "{reason}");
}

#[test]
fn numbers_of_any_length_are_compared_exactly() {
    let (_dir, file) = schema(r#"{"maximum": 9007199254740993}"#);
    let number = Validator::json_schema(&file).unwrap();
    accepts(&number, b"9007199254740993");
    refuses(&number, b"9007199254740994");
    refuses(&number, b"90071992547409930000000000000000000001");
}

#[test]
fn no_object_passes_for_a_number() {
    let (_dir, file) = schema(r#"{"items": {"type": "integer"}, "type": ["integer", "array"]}"#);
    let integers = Validator::json_schema(&file).unwrap();
    accepts(&integers, b"[1, 23456789012345678901234567890]");
    for bad in [
        &br#"{"$serde_json::private::Number": "5"}"#[..],
        br#"{"$serde_json::private::Number" : "5"}"#,
        br#"{"\u0024serde_json::private::Number": "5"}"#,
        br#"{"$serde_json::priv\u0061te::Number": "5"}"#,
        b"[1,\n{\"$serde_json::private::Number\":\n\"-1e5\"}]",
    ] {
        refuses(&integers, bad);
    }
    let lines = Validator::jsonl_schema(&file).unwrap();
    let (line, reason) = refuses(&lines, b"1\n{\"$serde_json::private::Number\": \"5\"}\n");
    assert_eq!(line, Some(2));
    assert!(reason.contains("`$serde_json::private::Number` is not taken as a key"), "{reason}");
    let (line, reason) = refuses(&integers, b"[1,\n {\"$serde_json::private::Number\":\"x\"}]");
    assert_eq!(line, Some(2), "{reason}");
    assert!(reason.ends_with("at column 3"), "{reason}");
}

#[test]
fn the_mark_of_numbers_is_a_text_like_others() {
    let (_dir, file) = schema("{}");
    let anything = Validator::json_schema(&file).unwrap();
    for good in [
        &br#"["$serde_json::private::Number", {"a": "$serde_json::private::Number"}]"#[..],
        br#"{"\"$serde_json::private::Number": 1, "$serde_json::private::Numbers": 2}"#,
    ] {
        accepts(&anything, good);
    }
    accepts(&Validator::json(), br#"{"$serde_json::private::Number": "5"}"#);
}

#[test]
fn a_reason_is_one_bounded_line() {
    let (_dir, file) = schema(r#"{"type": "integer"}"#);
    let integer = Validator::json_schema(&file).unwrap();
    let text = format!("\"\u{1b}[31m{}\"", "ä".repeat(100_000));
    let (_, reason) = refuses(&integer, text.replace('\u{1b}', "\\u001b").as_bytes());
    assert!(reason.chars().count() <= 301 && reason.ends_with('…'), "{reason}");
    assert!(!reason.contains(char::is_control), "{reason}");
}

#[test]
fn a_reason_begins_with_the_keyword_and_the_place() {
    let (_dir, file) = schema(
        r##"{"anyOf": [{"type": "string"}, {"type": "object", "required": ["items"],
            "properties": {"items": {"items": {"$ref": "#"}}}}]}"##,
    );
    let lines = Validator::jsonl_schema(&file).unwrap();
    let nested = |leaf: &str| [&r#"{"items":["#.repeat(6), leaf, &"]}".repeat(6)].concat();
    let (line, reason) = refuses(&lines, format!("\"\"\n{}\n", nested("7")).as_bytes());
    assert_eq!(line, Some(2));
    let place = "/items/0".repeat(6);
    let expected = format!(
        "anyOf at {place}: value is not valid under any of the schemas listed in the 'anyOf' \
         keyword: 7"
    );
    assert_eq!(reason, expected);
    // Neither a long value nor a long place takes the room of the rest.
    let many = format!("[{}0]", "0,".repeat(1000));
    let (_, reason) = refuses(&lines, format!("{{\"items\":[{many}]}}").as_bytes());
    assert!(reason.starts_with("anyOf at /items/0: value is not valid under any"), "{reason}");
    let value = reason.rsplit_once(": ").unwrap().1;
    assert!(value.starts_with("[0,0,") && value.ends_with('…') && value.len() <= 63, "{reason}");
    let name = "n".repeat(2000);
    let (_dir, file) = schema(r#"{"additionalProperties": {"type": "null"}}"#);
    let nulls = Validator::json_schema(&file).unwrap();
    let (_, reason) = refuses(&nulls, format!("{{\"{name}\": 12}}").as_bytes());
    assert!(reason.starts_with("type at /nnn") && reason.contains("nnn…nnn"), "{reason}");
    assert!(reason.ends_with(r#"value is not of type "null": 12"#), "{reason}");
}

#[test]
fn a_bad_schema_is_named() {
    for (text, part) in [
        ("{", "line 1: not JSON: EOF"),
        (r#"{"type": "strin"}"#, "is none at /type:"),
        ("[]", "is none"),
        (r#"{"$ref": "https://example.org/other.json"}"#, "other.json"),
        (r#"{"$ref": "file:///etc/passwd"}"#, "/etc/passwd"),
        (r##"{"$ref": "#/$defs/none"}"##, "none"),
        (r#"{"pattern": "("}"#, "is none at /pattern:"),
    ] {
        let (_dir, file) = schema(text);
        let error = Validator::jsonl_schema(&file).unwrap_err().to_string();
        assert!(error.contains("a.schema.json") && error.contains(part), "{text}: {error}");
    }
    let error = Validator::json_schema(std::path::Path::new("/no/such")).unwrap_err();
    assert!(error.to_string().contains("/no/such: cannot be read: No such file"), "{error}");
}

#[test]
fn no_other_file_is_read_for_a_schema() {
    let (dir, file) = schema(r#"{"$ref": "other.json"}"#);
    std::fs::write(dir.path().join("other.json"), "true").unwrap();
    assert!(Validator::json_schema(&file).is_err());
    let (_dir, drafts) = schema(r#"{"$ref": "https://json-schema.org/draft/2020-12/schema"}"#);
    accepts(&Validator::json_schema(&drafts).unwrap(), br#"{"type": "string"}"#);
}
