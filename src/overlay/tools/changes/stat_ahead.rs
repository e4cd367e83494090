//! Looks up objects of the base on another thread, ahead of the search that needs them: of a large
//! directory, they take about half of the search's time.

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::base::{Base, BaseAttr, BaseError, BasePath};

/// For fewer objects, a thread is not worth its start.
const FEWEST: usize = 64;

/// The most results that wait for the search.
const MAX_AHEAD: usize = 1024;

/// Returns the attributes of the object at a path.
pub(super) type LookUp<'a> = dyn FnMut(&BasePath) -> Result<BaseAttr, BaseError> + 'a;

/// Calls `search` with a function that it has to call for each of `paths`, in their order.
pub(super) fn stat_ahead<R>(
    base: &dyn Base,
    paths: Vec<BasePath>,
    search: impl FnOnce(&mut LookUp<'_>) -> R,
) -> R {
    if paths.len() < FEWEST {
        return search(&mut |path| base.stat(path));
    }
    thread::scope(|scope| {
        let (results, ahead) = sync_channel(MAX_AHEAD);
        let look = move || {
            for path in paths {
                if results.send(base.stat(&path)).is_err() {
                    // The search has ended.
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("stat-ahead".to_owned());
        match thread.spawn_scoped(scope, look) {
            Ok(_) => search(&mut |path| ahead.recv().unwrap_or_else(|_| base.stat(path))),
            Err(_) => search(&mut |path| base.stat(path)),
        }
    })
}
