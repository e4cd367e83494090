//! Calls, connections and bytes.

use std::collections::BTreeMap;

use nfs3_client::nfs3_types::nfs3::{createhow3, nfsstat3, sattr3, stable_how};

use super::Watched;
use crate::e2e::raw::{NFS, Raw, opaque, words};
use crate::support::http::{Scraped, get};

const MOUNT: u32 = 100_005;
const NLM: u32 = 100_021;

/// The procedures of NFS, by number.
const PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// The counts of calls, by `program procedure status`.
fn calls(scraped: &Scraped) -> BTreeMap<String, u64> {
    let all = scraped.all("acetate_rpc_calls_total");
    let named = all.into_iter().map(|(labels, count)| {
        let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
        (values.join(" "), count as u64)
    });
    named.collect()
}

/// The counts that are larger than before, by how much.
fn since(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let less = |name: &str| before.get(name).copied().unwrap_or_default();
    let changes = after.iter().map(|(name, count)| (name.clone(), count - less(name)));
    changes.filter(|(_, count)| *count > 0).collect()
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn each_procedure_is_counted_with_its_status() {
    let watched = Watched::start("", &[]);
    let server = &watched;
    let calls_now = || calls(&Scraped::of(server.admin));
    watched.runtime.block_on(async {
        let mut raw = Raw::connect(server.address()).await;
        let mut xid = 0;
        let mut ask = async |target: [u32; 3], args: &[u8]| {
            xid += 1;
            raw.send_call(xid, target, args).await;
            raw.reply().await.unwrap();
        };
        for (number, name) in (0..).zip(PROCEDURES) {
            let before = calls_now();
            // No arguments, and a handle that is none.
            ask([NFS, 3, number], b"").await;
            ask([NFS, 3, number], &[opaque(b"handle"), vec![0; 60]].concat()).await;
            let counted = since(&before, &calls_now());
            assert_eq!(counted.values().sum::<u64>(), 2, "{name}: {counted:?}");
            let of_procedure = format!("nfs {name} ");
            assert!(counted.keys().all(|key| key.starts_with(&of_procedure)), "{counted:?}");
            let empty = if name == "null" { "ok" } else { "garbage_args" };
            assert!(counted[&format!("nfs {name} {empty}")] >= 1, "{counted:?}");
        }
        let before = calls_now();
        ask([NFS, 3, 22], b"").await;
        ask([MOUNT, 3, 1], &opaque(b"/")).await;
        ask([MOUNT, 3, 1], &opaque(b"/none")).await;
        ask([MOUNT, 3, 5], b"").await;
        ask([NLM, 4, 0], b"").await;
        ask([NLM, 4, 2], b"").await;
        let mounted = [
            ("nfs unknown procedure_unavailable", 1),
            ("mount mnt ok", 1),
            ("mount mnt noent", 1),
            ("mount export ok", 1),
            ("nlm null ok", 1),
            ("nlm lock garbage_args", 1),
        ];
        assert_eq!(since(&before, &calls_now()), expected(&mounted));
    });
}

#[test]
fn a_status_is_that_of_the_reply() {
    let watched = Watched::start("file \"content\"", &[]);
    let mut peer = watched.peer();
    let before = calls(&Scraped::of(watched.admin));
    watched.runtime.block_on(async {
        let root = peer.root.clone();
        assert_eq!(peer.lookup(&root, "none").await.unwrap_err(), nfsstat3::NFS3ERR_NOENT);
        let file = peer.lookup(&root, "file").await.unwrap();
        peer.getattr(&file).await.unwrap();
        peer.getattr(&file).await.unwrap();
        let guarded = || createhow3::GUARDED(sattr3::default());
        let exists = peer.create(&root, "file", guarded()).await.unwrap_err();
        assert_eq!(exists, nfsstat3::NFS3ERR_EXIST);
        let made = peer.create(&root, "new", guarded()).await.unwrap();
        peer.write(&made, 0, b"12345", stable_how::UNSTABLE).await.unwrap();
        assert_eq!(peer.read(&made, 0, 100).await.unwrap(), b"12345");
        assert_eq!(peer.rmdir(&root, "new").await.unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
        peer.remove(&root, "new").await.unwrap();
        assert_eq!(peer.getattr(&made).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    });
    let counts = [
        ("nfs lookup noent", 1),
        ("nfs lookup ok", 1),
        ("nfs getattr ok", 2),
        ("nfs getattr stale", 1),
        ("nfs create exist", 1),
        ("nfs create ok", 1),
        ("nfs write ok", 1),
        ("nfs read ok", 1),
        ("nfs rmdir notdir", 1),
        ("nfs remove ok", 1),
    ];
    let scraped = Scraped::of(watched.admin);
    assert_eq!(since(&before, &calls(&scraped)), expected(&counts));
    let of_getattr = "{program=\"nfs\",procedure=\"getattr\"}";
    let times = scraped.value(&format!("acetate_rpc_duration_seconds_count{of_getattr}"));
    assert_eq!(times, 3.0);
    assert!(scraped.value(&format!("acetate_rpc_duration_seconds_sum{of_getattr}")) > 0.0);
    let last = "{le=\"+Inf\",program=\"nfs\",procedure=\"getattr\"}";
    assert_eq!(scraped.value(&format!("acetate_rpc_duration_seconds_bucket{last}")), 3.0);
    assert_eq!(scraped.value("acetate_read_bytes_total"), 5.0);
    assert_eq!(scraped.value("acetate_written_bytes_total"), 5.0);
}

#[test]
fn a_retransmission_is_no_call() {
    let watched = Watched::start("", &[]);
    let root = watched.peer().root.data.as_ref().to_vec();
    let attributes = words(&[1, 0o755, 0, 0, 0, 0, 0]);
    let args = [opaque(&root), opaque(b"made"), attributes].concat();
    watched.runtime.block_on(async {
        let mut raw = Raw::connect(watched.address()).await;
        for _ in 0..3 {
            raw.send_call(77, [NFS, 3, 9], &args).await;
            raw.reply().await.unwrap();
        }
    });
    let scraped = Scraped::of(watched.admin);
    assert_eq!(calls(&scraped)["nfs mkdir ok"], 1);
    assert_eq!(scraped.value("acetate_rpc_retransmissions_total"), 2.0);
    assert_eq!(scraped.value("acetate_reply_cache_entries"), 1.0);
}

#[test]
fn connections_bytes_and_refusals_are_counted() {
    let watched = Watched::start("", &[]);
    watched.runtime.block_on(async {
        let mut open = Raw::connect(watched.address()).await;
        open.send_call(1, [NFS, 3, 0], b"").await;
        let reply = open.reply().await.unwrap();
        // The header, AUTH_SYS and no arguments.
        let (asked, answered) = (24 + 36, reply.len() as f64);
        // A reply is counted a moment after the client has it.
        while Scraped::of(watched.admin).value("acetate_sent_bytes_total") < answered {}
        let scraped = Scraped::of(watched.admin);
        assert_eq!(scraped.value("acetate_connections"), 1.0);
        assert_eq!(scraped.value("acetate_connections_opened_total"), 1.0);
        assert_eq!(scraped.value("acetate_received_bytes_total"), f64::from(asked));
        assert_eq!(scraped.value("acetate_sent_bytes_total"), answered);

        let mut garbage = Raw::connect(watched.address()).await;
        garbage.send(&[0x80, 0, 0, 4, 0, 0, 0, 1]).await;
        assert!(garbage.reply().await.is_none());
        open.send_call(2, [NFS, 2, 0], b"").await;
        open.reply().await.unwrap();
        // A connection is counted as closed a moment after the client sees its end.
        let closed = "acetate_connections_closed_total{reason=\"garbage\"}";
        while Scraped::of(watched.admin).value(closed) < 1.0 {}
        let scraped = Scraped::of(watched.admin);
        assert_eq!(scraped.value("acetate_rpc_refusals_total{reason=\"garbage\"}"), 1.0);
        assert_eq!(scraped.value("acetate_rpc_refusals_total{reason=\"header\"}"), 1.0);
        assert_eq!(scraped.value(closed), 1.0);
        assert_eq!(scraped.value("acetate_connections_opened_total"), 2.0);
        let limit = scraped.value("acetate_connections_limit");
        // The server is done with a request a moment after the client has the reply.
        while Scraped::of(watched.admin).value("acetate_requests_in_flight") > 0.0 {}
        assert!(limit >= 1.0 && scraped.value("acetate_requests_limit") > limit);
    });
}

#[test]
fn pauses_of_clients_that_send_invalid_calls_are_counted() {
    let watched = Watched::start("", &[]);
    watched.runtime.block_on(async {
        let mut raw = Raw::connect(watched.address()).await;
        // More than are free.
        for xid in 0..34 {
            raw.send_call(xid, [NFS, 3, 22], b"").await;
            raw.reply().await.unwrap();
        }
    });
    let scraped = Scraped::of(watched.admin);
    assert!(scraped.value("acetate_throttles_total{reason=\"bad_calls\"}") >= 1.0);
}

#[test]
fn no_text_of_a_client_is_in_the_figures() {
    let watched = Watched::start("", &[]);
    let mut peer = watched.peer();
    watched.runtime.block_on(async {
        let root = peer.root.clone();
        peer.put(&root, "sesame", "open-up").await;
        assert!(peer.lookup(&root, "rumpel").await.is_err());
    });
    let text = get(watched.admin, "/metrics").body;
    for secret in ["sesame", "open-up", "rumpel", "s.db", "base\"", "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret}");
    }
}
