//! Clients of one export that take all connections, at the address of those of another.

use acetate::server::limits::Limits;

use super::Site;
use crate::e2e::raw::{GETATTR, NFS, Raw, opaque};

const EXPORTS: &str = r#"
    [[export]]
    path = "/greedy"
    options = ["insecure", "no_root_squash"]
      [[export.mount]]
      at = "/"
      session = "greedy.db"
    [[export]]
    path = "/good"
    options = ["insecure", "no_root_squash"]
      [[export.mount]]
      at = "/"
      session = "good.db"
"#;

const PLACES: usize = 16;

#[test]
fn clients_of_another_export_keep_their_connection_and_new_ones_get_in() {
    let limits = Limits { connections: PLACES, ..Limits::default() };
    let mut site = Site::start_with("", EXPORTS, limits);
    let mut good = site.peer("/good");
    let root = good.root.clone();
    site.wait(good.getattr(&root)).unwrap();
    let args = opaque(site.peer("/greedy").root.data.as_ref());
    let address = site.running.as_ref().unwrap().address;
    let mut greedy = Vec::new();
    for _ in 0..4 * PLACES {
        site.wait(async {
            let mut raw = Raw::connect(address).await;
            raw.send_call(1, [NFS, 3, GETATTR], &args).await;
            assert!(raw.reply().await.is_some());
            greedy.push(raw);
            // The others are busy, as far as they are there.
            let open = greedy.len().saturating_sub(PLACES / 2);
            for raw in &mut greedy[open..] {
                raw.send_call(1, [NFS, 3, GETATTR], &args).await;
                assert!(raw.reply().await.is_some());
            }
        });
    }
    site.wait(good.getattr(&root)).expect("its connection is there");
    let mut other = site.peer("/good");
    site.wait(other.getattr(&root)).unwrap();
    drop(greedy);
    site.stop();
}
