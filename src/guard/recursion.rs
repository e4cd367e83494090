//! Finds where a JSON Schema recurses through `anyOf` or `oneOf`.
//!
//! There a content that is nested n deep may be checked 2^n times, and more where the choice is
//! wider: each branch goes down to the end before the next is tried. The bounds of a check hold all
//! the same; this is to warn of content that is refused because of them.

use std::collections::HashMap;

use serde_json::Value;

/// Keywords whose value is a schema, or a list of schemas.
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

/// Keywords whose value has a schema for each name.
const MAPS: &[&str] = &["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords that choose among schemas.
const CHOICES: &[&str] = &["anyOf", "oneOf"];

/// Keywords that name another schema.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// The schemas that the root leads to, and which of them each applies.
#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    /// Nodes by the address of their value.
    found: HashMap<*const Value, usize>,
    /// Schemas by `$id`, and by anchor.
    ids: HashMap<&'a str, &'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
}

struct Node<'a> {
    schema: &'a Value,
    /// The schema with an `$id` that it is a part of, or the whole document.
    resource: &'a Value,
    /// What it applies, and by which choice, if that is one.
    edges: Vec<(usize, Option<&'static str>)>,
    /// Where it is, for a person.
    place: String,
}

/// The first place, in words, where a schema recurses through a choice.
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
        // An edge within a component is on a cycle.
        let choice =
            edges.find_map(|(to, choice)| choice.filter(|_| component[from] == component[*to]))?;
        Some(format!("through `{choice}` at {}", node.place))
    })
}

impl<'a> Graph<'a> {
    /// Notes the `$id`s and anchors of a document.
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

    /// The node of a schema.
    fn add(&mut self, schema: &'a Value, resource: &'a Value, place: String) -> usize {
        let next = self.nodes.len();
        let node = *self.found.entry(schema).or_insert(next);
        if node == next {
            let is_resource = schema.get("$id").is_some();
            let resource = if is_resource { schema } else { resource };
            self.nodes.push(Node { schema, resource, edges: Vec::new(), place });
        }
        node
    }

    /// Finds what a node applies.
    fn follow(&mut self, at: usize, root: &'a Value) {
        let (schema, resource) = (self.nodes[at].schema, self.nodes[at].resource);
        let Value::Object(object) = schema else { return };
        let place = self.nodes[at].place.clone();
        for (keyword, value) in object {
            let choice = CHOICES.iter().find(|choice| *choice == keyword).copied();
            let below = format!("{place}/{keyword}");
            if REFERENCES.contains(&keyword.as_str()) {
                for (target, place) in self.targets(value, resource, root) {
                    let to = self.add(target, root, place);
                    self.nodes[at].edges.push((to, None));
                }
                continue;
            }
            let is_named = MAPS.contains(&keyword.as_str());
            if choice.is_none() && !is_named && !SCHEMAS.contains(&keyword.as_str()) {
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

    /// The schemas that a reference may lead to, and where they are.
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

    /// The strongly connected component of each node (Tarjan's algorithm, without recursion); of a
    /// node that does not lead to itself, one of its own.
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

/// Whether a reference's address is that of a schema's `$id`: either may be relative.
fn is_same(id: &str, base: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short.trim_start_matches('/')).is_some_and(|rest| rest.ends_with('/'))
    };
    id == base || ends(id, base) || ends(base, id)
}

/// A fragment of an address without percent encoding.
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
