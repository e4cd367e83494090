//! Guarded files that clients write while the session goes back to a checkpoint.

use acetate::delta::{
    CheckpointKind, MadeCheckpoint, MergedPath, NewCheckpoint, RestoreOutcome, RestorePaths,
    RestoreRequest,
};
use acetate::overlay::Overlay;
use acetate::vfs::{Caller, Time};

use super::Site;
use super::guard::{INVAL, OLD, OLD_BYTES, commit, content, guarded, piece, size, sized, stable};

/// The session `g.db`, with the mark of a checkpoint.
fn overlay(site: &Site) -> std::sync::Arc<Overlay> {
    let served = &site.running.as_ref().unwrap().served;
    let sessions = served.sessions();
    let found = sessions.iter().find(|layers| layers.session.ends_with("g.db")).unwrap();
    std::sync::Arc::clone(&found.overlay)
}

const NEW: &str = "{\"kind\": \"new\"}\n";

async fn checkpoint(overlay: &Overlay) -> RestoreRequest {
    let new = NewCheckpoint {
        name: None,
        kind: CheckpointKind::Manual,
        labels: Default::default(),
        time: Time::default(),
        reuses: false,
        needed: None,
    };
    let made = overlay.create_checkpoint(new).await.unwrap();
    let MadeCheckpoint::Made(made) = made else { panic!("{made:?}") };
    RestoreRequest { to: made.id, seen: None, time: Time::default() }
}

#[test]
fn what_is_half_written_at_a_restore_is_refused() {
    let mut guarded = guarded();
    let overlay = overlay(&guarded.site);
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        let to = checkpoint(&overlay).await;
        stable(&mut two, &file, OLD_BYTES, NEW).await.unwrap();
        // One client has sent a part, and has more under way; another one has cut the file.
        piece(&mut one, &file, 0, NEW).await.unwrap();
        two.setattr(&file, sized(0)).await.unwrap();
        let done = overlay.restore(&Caller::owner(0, 0), to).await.unwrap();
        assert!(matches!(done, RestoreOutcome::Restored(_)), "{done:?}");
        assert_eq!(piece(&mut one, &file, 16, NEW).await, Err(INVAL));
        assert_eq!(commit(&mut one, &file).await, Err(INVAL));
        assert_eq!(content(&mut one, &file).await, OLD);
        // Both go on.
        stable(&mut two, &file, OLD_BYTES, NEW).await.unwrap();
        assert_eq!(content(&mut two, &file).await, [OLD, NEW].concat());
        one.setattr(&file, sized(0)).await.unwrap();
        piece(&mut one, &file, 0, NEW).await.unwrap();
        commit(&mut one, &file).await.unwrap();
        assert_eq!(size(&mut two, &file).await, NEW.len() as u64);
    });
    guarded.site.stop();
}

#[test]
fn what_is_half_written_at_a_restore_of_other_paths_is_refused_too() {
    let mut guarded = guarded();
    let overlay = overlay(&guarded.site);
    guarded.site.wait(async {
        let (mut one, _, file) = guarded.with_file().await;
        let to = checkpoint(&overlay).await;
        stable(&mut one, &file, OLD_BYTES, NEW).await.unwrap();
        piece(&mut one, &file, 0, NEW).await.unwrap();
        let plain = MergedPath::from_bytes(b"/agent/plain").unwrap();
        let paths = RestorePaths { paths: [plain].into(), ..RestorePaths::default() };
        let done = overlay.restore_paths(&Caller::owner(0, 0), to, paths).await.unwrap();
        assert!(matches!(done, RestoreOutcome::Restored(_)), "{done:?}");
        assert_eq!(commit(&mut one, &file).await, Err(INVAL));
        assert_eq!(content(&mut one, &file).await, [OLD, NEW].concat());
    });
    guarded.site.stop();
}
