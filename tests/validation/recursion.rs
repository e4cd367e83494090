//! Schemas that recurse through a choice are found, others are not.

use acetate::validation::Validator;

use crate::support::validators::schema;

fn found(text: &str) -> Option<String> {
    let (_dir, file) = schema(text);
    Validator::json_schema(&file).unwrap().recursion().map(str::to_owned)
}

#[test]
fn recursion_through_a_choice_is_found() {
    for (schema, place) in [
        (r##"{"anyOf": [{"items": {"$ref": "#"}}, {"type": "string"}]}"##, "through `anyOf` at #"),
        (
            r##"{"$ref": "#/$defs/node", "$defs": {"node": {"oneOf": [
                {"properties": {"type": {"const": "a"}, "next": {"$ref": "#/$defs/node"}}},
                {"properties": {"type": {"const": "b"}, "next": {"$ref": "#/$defs/node"}}}]}}}"##,
            "through `oneOf` at #/$defs/node",
        ),
        // By an anchor, by an address, and by steps in between.
        (
            r##"{"$ref": "#n", "$defs": {"x": {"$anchor": "n",
                "properties": {"a": {"anyOf": [true, {"$ref": "#n"}]}}}}}"##,
            "through `anyOf` at #n/properties/a",
        ),
        (
            r##"{"$id": "https://example.org/tree", "$ref": "/node", "$defs": {"node": {
                "$id": "node", "anyOf": [{"items": {"$ref": "https://example.org/node"}}]}}}"##,
            "through `anyOf` at /node",
        ),
        (
            r##"{"$id": "https://example.org/a", "$dynamicAnchor": "node",
                "properties": {"c": {"oneOf": [{"$dynamicRef": "#node"}, {"type": "null"}]}}}"##,
            "through `oneOf` at #/properties/c",
        ),
        (
            r##"{"$schema": "https://json-schema.org/draft/2019-09/schema",
                "anyOf": [{"additionalProperties": {"$recursiveRef": "#"}}, {"type": "string"}]}"##,
            "through `anyOf` at #",
        ),
        (
            r##"{"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"anyOf": [
                {"items": [{"$ref": "#/definitions/a~1b%20c"}]}]}},
                "$schema": "http://json-schema.org/draft-07/schema#"}"##,
            "through `anyOf` at #/definitions/a~1b%20c",
        ),
    ] {
        assert_eq!(found(schema).as_deref(), Some(place), "{schema}");
    }
}

#[test]
fn schemas_of_context_nodes_do_not_recurse() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/context/schemas");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 3);
    for file in files {
        let validator = Validator::json_schema(&file.path()).unwrap();
        assert_eq!(validator.recursion(), None, "{file:?}");
    }
}

#[test]
fn other_schemas_are_left_alone() {
    for schema in [
        "{}",
        r#"{"anyOf": [{"type": "string"}, {"type": "array", "items": {"oneOf": [true]}}]}"#,
        // It recurses, but not through the choice.
        r##"{"anyOf": [{"type": "null"}, {"type": "object"}], "items": {"$ref": "#"}}"##,
        r##"{"allOf": [{"items": {"$ref": "#"}}]}"##,
        // Nothing leads there.
        r##"{"$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}]}}}"##,
        // No schemas: a value, and a property of that name.
        r##"{"const": {"anyOf": [{"$ref": "#"}]}}"##,
        r##"{"properties": {"anyOf": {"items": {"$ref": "#"}}}}"##,
        // The same schema in two branches, once.
        r##"{"anyOf": [{"$ref": "#/$defs/a"}, {"items": {"$ref": "#/$defs/a"}}],
            "$defs": {"a": {"type": "string"}}}"##,
    ] {
        assert_eq!(found(schema), None, "{schema}");
    }
}

/// A branch of a choice: an object whose `type` is this.
fn branch(name: &str) -> String {
    format!(
        r##"{{"type": "object", "required": ["type"],
            "properties": {{"type": {{"const": {name}}}, "next": {{"$ref": "#"}}}}}}"##
    )
}

#[test]
fn branches_that_a_required_constant_tells_apart_are_left_alone() {
    let [a, b, c] = [r#""a""#, r#""b""#, r#""c""#].map(branch);
    for choice in ["anyOf", "oneOf"] {
        let direct = format!(r#"{{"{choice}": [{a}, {b}, {c}]}}"#);
        assert_eq!(found(&direct), None, "{direct}");
        let referred = format!(
            r##"{{"{choice}": [{{"$ref": "#/$defs/a"}}, {b}, {c}], "$defs": {{"a": {a}}}}}"##
        );
        assert_eq!(found(&referred), None, "{referred}");
    }
}

#[test]
fn branches_that_are_not_told_apart_are_found() {
    let [a, b, c] = [r#""a""#, r#""b""#, r#""c""#].map(branch);
    let optional = c.replace(r#""required": ["type"],"#, "");
    let list = c.replace(r#""properties""#, r##""items": {"$ref": "#"}, "properties""##);
    let deeper = c.replace(r#""properties""#, r##""allOf": [{"items": {}}], "properties""##);
    for schema in [
        // Two are tried one after the other.
        format!(r#"{{"anyOf": [{a}, {b}]}}"#),
        format!(r#"{{"anyOf": [{a}, {b}, {b}]}}"#),
        format!(r#"{{"anyOf": [{a}, {b}, {}]}}"#, branch("3")),
        format!(r#"{{"anyOf": [{a}, {b}, {optional}]}}"#),
        format!(r#"{{"anyOf": [{a}, {b}, {{"type": "string"}}]}}"#),
        // An array is told apart from nothing.
        format!(r#"{{"anyOf": [{a}, {b}, {list}]}}"#),
        format!(r#"{{"anyOf": [{a}, {b}, {deeper}]}}"#),
        // Each level is checked twice.
        format!(r#"{{"anyOf": [{a}, {b}, {c}], "oneOf": [{a}, {b}, {c}]}}"#),
        format!(r#"{{"anyOf": [{a}, {b}, {c}], "unevaluatedProperties": false}}"#),
        // Draft 4 has no `const`.
        format!(
            r#"{{"$schema": "http://json-schema.org/draft-04/schema#", "anyOf": [{a}, {b}, {c}]}}"#
        ),
    ] {
        assert!(found(&schema).is_some(), "{schema}");
    }
}
