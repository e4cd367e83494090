//! Detects JSON Schemas that recurse through `anyOf` or `oneOf`.
//!
//! A validator checks each branch to the end before it tries the next. Content that is nested n
//! deep may therefore be checked 2^n times, or more with more branches. The limits of a check still
//! hold; this detection only warns that content may be rejected because of them. A choice does not
//! count if a required property selects the branch (jsonschema's `discriminator`).

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value maps names to schemas.
const MAPS: &[&str] = &["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords that choose among schemas.
const CHOICES: &[&str] = &["anyOf", "oneOf"];

/// Number of branches from which jsonschema looks for a discriminator.
const MIN_TOLD_APART: usize = 3;

/// Keywords that rule out a discriminator: they apply to arrays, or apply other schemas to the same
/// value.
const BARRED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "$schema",
    "additionalItems",
    "allOf",
    "anyOf",
    "contains",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Length of a chain of references to a branch.
const MAX_REFERENCES: usize = 8;

/// Keywords that refer to another schema.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// The schemas reachable from the root, with their applications as edges.
#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<SchemaNode<'a>>,
    /// Nodes by the address of their value.
    found: HashMap<*const Value, usize>,
    /// Schemas by `$id` and by anchor.
    ids: HashMap<&'a str, &'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
}

struct SchemaNode<'a> {
    schema: &'a Value,
    /// The enclosing schema with an `$id`, or the whole document.
    resource: &'a Value,
    /// Target nodes; with the choice keyword, if the edge belongs to a choice.
    edges: Vec<(usize, Option<&'static str>)>,
    /// Location, for messages.
    place: String,
}

/// The first location at which a schema recurses through a choice.
pub(super) fn find_recursion(root: &Value) -> Option<String> {
    let mut graph = Graph::default();
    graph.index(root);
    graph.add(root, root, "#".to_owned());
    let mut at = 0;
    while at < graph.nodes.len() {
        graph.follow(at, root);
        at += 1;
    }
    let component = graph.components();
    graph.nodes.iter().enumerate().find_map(|(from, node)| {
        let mut edges = node.edges.iter();
        // An edge within a component is part of a cycle.
        let choice =
            edges.find_map(|(to, choice)| choice.filter(|_| component[from] == component[*to]))?;
        Some(format!("through `{choice}` at {}", node.place))
    })
}

impl<'a> Graph<'a> {
    /// Collects the `$id`s and anchors of a document.
    fn index(&mut self, value: &'a Value) {
        match value {
            Value::Object(object) => {
                for key in ["$id", "id"] {
                    if let Some(Value::String(id)) = object.get(key) {
                        self.ids.insert(id.trim_end_matches('#'), value);
                    }
                }
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(Value::String(name)) = object.get(key) {
                        self.anchors.entry(name).or_default().push(value);
                    }
                }
                object.values().for_each(|value| self.index(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.index(value)),
            _ => {}
        }
    }

    /// The node of a schema; adds it if it is new.
    fn add(&mut self, schema: &'a Value, resource: &'a Value, place: String) -> usize {
        let next = self.nodes.len();
        let node = *self.found.entry(schema).or_insert(next);
        if node == next {
            let is_resource = schema.get("$id").is_some();
            let resource = if is_resource { schema } else { resource };
            self.nodes.push(SchemaNode { schema, resource, edges: Vec::new(), place });
        }
        node
    }

    /// Adds the edges of a node.
    fn follow(&mut self, at: usize, root: &'a Value) {
        let (schema, resource) = (self.nodes[at].schema, self.nodes[at].resource);
        let Value::Object(object) = schema else { return };
        let place = self.nodes[at].place.clone();
        let is_told_apart = has_discriminator(object, resource, root);
        for (keyword, value) in object {
            let choice = CHOICES.iter().find(|choice| *choice == keyword).copied();
            let is_schema = choice.is_some();
            let choice = choice.filter(|_| !is_told_apart);
            let below = format!("{place}/{keyword}");
            if REFERENCES.contains(&keyword.as_str()) {
                for (target, place) in self.targets(value, resource, root) {
                    let to = self.add(target, root, place);
                    self.nodes[at].edges.push((to, None));
                }
                continue;
            }
            let is_named = MAPS.contains(&keyword.as_str());
            if !is_schema && !is_named && !SCHEMAS.contains(&keyword.as_str()) {
                continue;
            }
            let parts: Vec<(String, &Value)> = match value {
                Value::Array(values) => {
                    let parts = values.iter().enumerate();
                    parts.map(|(number, value)| (format!("{below}/{number}"), value)).collect()
                }
                Value::Object(values) if is_named => {
                    values.iter().map(|(name, it)| (format!("{below}/{name}"), it)).collect()
                }
                value => vec![(below, value)],
            };
            for (place, part) in parts.into_iter().filter(|(_, part)| part.is_object()) {
                let to = self.add(part, resource, place);
                self.nodes[at].edges.push((to, choice));
            }
        }
    }

    /// The schemas that a reference may resolve to, with their locations.
    fn targets(
        &self,
        reference: &'a Value,
        resource: &'a Value,
        root: &'a Value,
    ) -> Vec<(&'a Value, String)> {
        let Value::String(reference) = reference else { return Vec::new() };
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let bases = match base {
            "" => vec![resource, root],
            base => {
                self.ids.iter().filter(|(id, _)| is_same(id, base)).map(|(_, it)| *it).collect()
            }
        };
        let found: Vec<&Value> = match fragment {
            "" => bases,
            pointer if pointer.starts_with('/') => {
                bases.iter().filter_map(|base| base.pointer(&decoded(pointer))).collect()
            }
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        };
        found.into_iter().map(|schema| (schema, reference.clone())).collect()
    }

    /// The strongly connected component of each node, by an iterative version of Tarjan's
    /// algorithm. A node without a cycle has a component of its own.
    fn components(&self) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let count = self.nodes.len();
        let (mut order, mut low) = (vec![NONE; count], vec![0; count]);
        let (mut component, mut open, mut next) = (vec![NONE; count], Vec::new(), 0);
        for start in 0..count {
            let mut path = if order[start] == NONE { vec![(start, 0)] } else { Vec::new() };
            while let Some((node, edge)) = path.pop() {
                if edge == 0 {
                    (order[node], low[node]) = (next, next);
                    next += 1;
                    open.push(node);
                }
                match self.nodes[node].edges.get(edge) {
                    Some(&(to, _)) => {
                        path.push((node, edge + 1));
                        if order[to] == NONE {
                            path.push((to, 0));
                        } else if component[to] == NONE {
                            low[node] = low[node].min(order[to]);
                        }
                    }
                    None => {
                        if low[node] == order[node] {
                            while let Some(member) = open.pop() {
                                component[member] = node;
                                if member == node {
                                    break;
                                }
                            }
                        }
                        if let Some(&(parent, _)) = path.last() {
                            low[parent] = low[parent].min(low[node]);
                        }
                    }
                }
            }
        }
        component
    }
}

/// Whether a required property with a distinct constant in each branch selects the branch of the
/// schema's only choice, so that the validator tries one branch only.
fn has_discriminator(object: &Map<String, Value>, resource: &Value, root: &Value) -> bool {
    // `unevaluated*` evaluates the choice a second time.
    let is_checked_twice = object.keys().any(|keyword| keyword.starts_with("unevaluated"));
    // Draft 4 has no `const`. In a schema with its own `$id`, references resolve elsewhere.
    let is_plain = std::ptr::eq(resource, root)
        && root.get("$schema").and_then(Value::as_str).is_none_or(|it| !it.contains("draft-04"));
    let mut choices = CHOICES.iter().filter_map(|choice| object.get(*choice));
    let (Some(Value::Array(branches)), None) = (choices.next(), choices.next()) else {
        return false;
    };
    if is_checked_twice || !is_plain || branches.len() < MIN_TOLD_APART {
        return false;
    }
    let branches: Option<Vec<_>> = branches.iter().map(|it| constants(it, root)).collect();
    let Some(branches) = branches else { return false };
    branches[0].keys().any(|key| {
        let values: Option<HashSet<&str>> =
            branches.iter().map(|branch| branch.get(key).copied()).collect();
        values.is_some_and(|values| values.len() == branches.len())
    })
}

/// The required properties of a branch that have a constant string; `None` if the branch may apply
/// to other values than objects.
fn constants<'a>(mut branch: &'a Value, root: &'a Value) -> Option<HashMap<&'a str, &'a str>> {
    for _ in 0..MAX_REFERENCES {
        let Some(reference) = branch.get("$ref") else { break };
        // jsonschema ignores keywords beside `$ref` here.
        (branch.as_object()?.len() == 1).then_some(())?;
        branch = root.pointer(&decoded(reference.as_str()?.strip_prefix('#')?))?;
    }
    let object = branch.as_object()?;
    let is_barred = |keyword: &String| {
        BARRED.contains(&keyword.as_str()) || ["$ref", "$id", "id"].contains(&keyword.as_str())
    };
    if object.get("type")?.as_str() != Some("object") || object.keys().any(is_barred) {
        return None;
    }
    let properties = object.get("properties")?.as_object()?;
    let required = object.get("required")?.as_array()?.iter().filter_map(Value::as_str);
    let constant = |key: &'a str| Some((key, properties.get(key)?.get("const")?.as_str()?));
    Some(required.filter_map(constant).collect())
}

/// Whether a reference's URI matches a schema's `$id`; either may be relative.
fn is_same(id: &str, base: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short.trim_start_matches('/')).is_some_and(|rest| rest.ends_with('/'))
    };
    id == base || ends(id, base) || ends(base, id)
}

/// Decodes the percent encoding of a URI fragment.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
