//! A session file as tools see it: now, or at a checkpoint.

use std::path::Path;

use acetate::delta::Checkpoint;
use acetate::delta::sqlite::{Host, OpenMode, Session};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::TreeObject;
use acetate::vfs::FileKind;

/// Opens a session to look at it, over the base that it records.
#[track_caller]
pub fn look(path: &Path, at: Option<&Checkpoint>) -> OpenSession {
    let mut session = Session::open(path, OpenMode::Inspect, &Host::current().unwrap()).unwrap();
    if let Some(at) = at {
        session.show_at(at);
    }
    OpenSession::over(session, None).unwrap()
}

/// Calls `each` with each object of a tree, the root first, and its whole content or target.
#[track_caller]
pub fn each_object(opened: &OpenSession, each: &mut dyn FnMut(&TreeObject, Vec<u8>)) {
    let looked = opened.with_tree(|view| {
        let root = view.root().unwrap();
        let walked = walk(view, &root, &mut |_, object, _| {
            let mut content = Vec::new();
            match object.attr().kind {
                FileKind::Regular => {
                    content = vec![0xAA; object.attr().size as usize];
                    let mut at = 0;
                    while at < content.len() {
                        let got = view.read(object, at as u64, &mut content[at..]).unwrap();
                        assert!(got > 0, "{} is cut", object.path().display());
                        at += got;
                    }
                }
                FileKind::Symlink => content = view.target(object).unwrap().to_vec(),
                _ => {}
            }
            each(object, content);
            Ok(WalkControl::Deeper)
        });
        walked.map(drop)
    });
    looked.unwrap();
}
