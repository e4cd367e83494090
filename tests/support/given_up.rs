//! What giving changes up must come to: some of the differences from the base are gone, none is
//! new, and without any of them the tree is the base.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use acetate::delta::MergedPath;
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::selection::Selection;

use super::world::World;

/// The paths of the differences at paths, and those where the objects came from.
fn differing(session: &Path, base: &Path, paths: &[MergedPath]) -> BTreeSet<MergedPath> {
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let selection = Selection::of(paths.iter().cloned());
    let options = DiffOptions { client_temp_files: true, selection, ..DiffOptions::default() };
    let mut differing = BTreeSet::new();
    diff(&opened, &options, &mut |view, difference| {
        let before = difference.change.before.filter(|_| !difference.change.is_link);
        if let Some(base) = before {
            let from = MergedPath::of_base(&base.path);
            // What came from there may stay where another directory took the place of its own.
            let is_back = || {
                let found = view.find(&from).unwrap();
                found.is_some_and(|found| found.attr().fileid == base.attr.fileid)
            };
            if paths.is_empty() || is_back() {
                differing.insert(from);
            }
        }
        let is_asked = |path: &MergedPath| difference.path.is_within(path);
        if paths.is_empty() || paths.iter().any(is_asked) {
            differing.insert(difference.path);
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    differing
}

/// Gives up what is at a path, and asserts that it shows no difference any more, and that no
/// other one came up.
#[track_caller]
pub fn assert_given_up(world: &World, path: &[u8]) {
    let (session, base) = (world.session(), world.base());
    let asked = vec![MergedPath::from_user(path).unwrap()];
    let before = differing(&session, &base, &[]);
    let undo = world.wait(world.overlay.discard(&world.caller, asked.clone())).unwrap();
    let after = differing(&session, &base, &[]);
    let shown = path.escape_ascii();
    if undo.idle.iter().any(|idle| idle.gone_with.is_some()) {
        assert_eq!(after, before, "{shown}: {undo:?}");
        return;
    }
    assert_eq!(differing(&session, &base, &asked), BTreeSet::new(), "{shown}: {undo:?}");
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "{shown}: {undo:?}: {new:#?}");
}
