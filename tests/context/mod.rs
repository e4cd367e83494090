//! Context nodes over a tree in memory that ends at any step, and over a real session.

mod branches;
mod killed;
mod memory;
mod nodes;
mod outbox;
mod session;
mod uri;

use acetate::context::{NodePut, Nodes, Uri};

use memory::Memory;

/// A node of each form.
const COFFEE: &str = "ctx://acme/users/alice/memories/preferences/coffee";
const VISIT: &str = "ctx://acme/agents/gpt-4/memories/events/visit_20250315";
const BREW: &str = "ctx://acme/agents/gpt-4/skills/brew";

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

fn content(text: &str) -> NodePut {
    NodePut { content: text.as_bytes().to_vec(), ..NodePut::default() }
}

/// The nodes in a tree, with a clock of their own.
fn nodes(tree: &mut Memory) -> Nodes<&mut Memory> {
    let stamps = tree.stamps();
    Nodes::with_stamps(tree, None, stamps)
}
