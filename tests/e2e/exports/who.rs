//! Who may come, as whom, and what they may do and have.

use nfs3_client::MountClient;
use nfs3_client::nfs3_types::mount::{dirpath, mountstat3};
use nfs3_client::nfs3_types::nfs3::{Nfs3Option, createhow3, nfsstat3, sattr3, stable_how};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::TokioIo;
use tokio::net::TcpStream;

use super::Site;
use crate::e2e::peer::mode;
use crate::e2e::raw::{GETATTR, NFS, Raw, opaque};

const EXPORTS: &str = r#"
    [[export]]
    path = "/open"
    options = ["insecure", "anonuid=1234", "anongid=1235"]
    hide = [".env", "keys/**"]
      [[export.mount]]
      at = "/"
      session = "open.db"
      base = "base"
      [[export.mount]]
      at = "/ro"
      session = "ro.db"
      options = ["ro"]
    [[export]]
    path = "/elsewhere"
    clients = ["192.0.2.0/24"]
    options = ["insecure"]
      [[export.mount]]
      at = "/"
      session = "elsewhere.db"
    [[export]]
    path = "/privileged"
      [[export.mount]]
      at = "/"
      session = "privileged.db"
    [[export]]
    name = "secret"
    token = true
    options = ["insecure", "no_root_squash"]
      [[export.mount]]
      at = "/"
      session = "secret.db"
    [[export]]
    path = "/small"
    options = ["insecure", "no_root_squash"]
    quota = { bytes = "64KiB", files = 3 }
      [[export.mount]]
      at = "/"
      session = "small.db"
      [[export.mount]]
      at = "/more"
      session = "more.db"
"#;

const BASE: &str = r#"
    .env "PASSWORD=hunter2"
    dir/.env "PASSWORD=hunter2"
    keys/id "private"
    plain "text"
"#;

#[test]
fn what_may_not_be_mounted_is_as_if_it_were_not_there() {
    let mut site = Site::start(BASE, EXPORTS);
    let address = site.running.as_ref().unwrap().address;
    site.wait(async {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let mut client = MountClient::new(io);
        let mut answers = Vec::new();
        let forbidden = ["/elsewhere", "/privileged", "/nothing", "/secret", "/open/dir", "/"];
        for path in forbidden {
            let answer = client.mnt(dirpath(Opaque::borrowed(path.as_bytes()))).await;
            answers.push(format!("{:?}", answer.unwrap_err()));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert!(answers[0].contains(&format!("{:?}", mountstat3::MNT3ERR_NOENT)), "{answers:?}");
        client.mnt(dirpath(Opaque::borrowed(b"//open/"))).await.unwrap();
        let told = client.export().await.unwrap().into_inner();
        let told: Vec<_> = told.iter().map(|export| export.ex_dir.0.as_ref().to_vec()).collect();
        assert_eq!(told, [b"/open".to_vec(), b"/small".to_vec()]);
    });
    site.stop();
}

#[test]
fn a_token_is_the_way_in_and_is_never_told() {
    let mut site = Site::start(BASE, EXPORTS);
    let tokens = std::fs::read_to_string(site.path("exports.toml.tokens")).unwrap();
    let token = tokens.split('"').nth(3).unwrap().to_owned();
    let mut peer = site.peer(&format!("/secret-{token}"));
    let address = site.running.as_ref().unwrap().address;
    site.wait(async {
        let root = peer.root.clone();
        peer.put(&root, "file", "content").await;
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let mut client = MountClient::new(io);
        assert_eq!(client.dump().await.unwrap().into_inner().len(), 0);
    });
    let log = site.log("secret.db").join("\n");
    assert!(log.contains("CREATE /file secret#"), "{log}");
    assert!(!log.contains(&token), "{log}");
    site.stop();
    site.run();
    site.peer(&format!("/secret-{token}"));
    assert!(site.mount("/secret-00000000000000000000000000000000", 0, 0).is_none());
    site.stop();
}

#[test]
fn root_is_squashed_and_cannot_give_files_away() {
    let mut site = Site::start(BASE, EXPORTS);
    let mut peer = site.peer("/open");
    std::fs::set_permissions(
        site.path("base"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    site.before = crate::support::host_tree::HostTree::read(&site.path("base"));
    let mut user = site.mount("/open", 1234, 1235).unwrap();
    site.wait(async {
        let root = peer.root.clone();
        let denied = nfsstat3::NFS3ERR_ACCES;
        // The root is the base's owner's, and root is nobody here.
        let made = peer.create(&root, "file", createhow3::UNCHECKED(mode(0o600))).await;
        assert_eq!(made.err(), Some(denied));
        let plain = user.at("plain").await;
        assert_eq!(user.read(&plain, 0, 100).await, Ok(b"text".to_vec()));
        let owner = sattr3 { uid: Nfs3Option::Some(0), ..sattr3::default() };
        assert!(peer.setattr(&plain, owner).await.is_err());
    });
    site.stop();
}

#[test]
fn read_only_is_below_every_path_to_a_write() {
    let mut site = Site::start(BASE, EXPORTS);
    let mut peer = site.peer("/open");
    site.wait(async {
        let ro = peer.at("ro").await;
        let refused = nfsstat3::NFS3ERR_ROFS;
        assert_eq!(peer.mkdir(&ro, "dir").await.err(), Some(refused));
        assert_eq!(peer.setattr(&ro, mode(0o777)).await.err(), Some(refused));
        let made = peer.create(&ro, "file", createhow3::UNCHECKED(mode(0o600))).await;
        assert_eq!(made.err(), Some(refused));
        assert_eq!(peer.symlink(&ro, "link", "x").await.err(), Some(refused));
    });
    assert_eq!(site.log("ro.db"), Vec::<String>::new());
    site.stop();
}

#[test]
fn what_is_hidden_is_not_there() {
    let mut site = Site::start(BASE, EXPORTS);
    let mut peer = site.peer("/open");
    site.wait(async {
        let root = peer.root.clone();
        assert_eq!(peer.ls(&root).await, ["dir", "keys", "plain", "ro"]);
        let missing = Some(nfsstat3::NFS3ERR_NOENT);
        assert_eq!(peer.lookup(&root, ".env").await.err(), missing);
        let keys = peer.at("keys").await;
        assert_eq!(peer.ls(&keys).await, Vec::<String>::new());
        assert_eq!(peer.lookup(&keys, "id").await.err(), missing);
        let dir = peer.at("dir").await;
        assert_eq!(peer.lookup(&dir, ".env").await.err(), missing);
    });
    site.stop();
}

#[test]
fn a_quota_counts_all_mounts_of_its_export() {
    let mut site = Site::start(BASE, EXPORTS);
    let mut peer = site.peer("/small");
    site.wait(async {
        let root = peer.root.clone();
        let more = peer.at("more").await;
        let (full, sync) = (nfsstat3::NFS3ERR_DQUOT, stable_how::FILE_SYNC);
        let one = peer.put(&root, "one", "").await;
        peer.write(&one, 0, &[1; 40 << 10], sync).await.unwrap();
        let two = peer.put(&more, "two", "").await;
        assert_eq!(peer.write(&two, 0, &[2; 40 << 10], sync).await.err(), Some(full));
        peer.write(&two, 0, &[2; 20 << 10], sync).await.unwrap();
        peer.put(&more, "three", "").await;
        assert_eq!(peer.mkdir(&root, "four").await.err(), Some(full));
        peer.remove(&root, "one").await.unwrap();
        peer.write(&two, 0, &[2; 40 << 10], sync).await.unwrap();
        peer.mkdir(&root, "four").await.unwrap();
    });
    site.stop();
}

#[test]
fn calls_without_credentials_are_too_weak() {
    let mut site = Site::start(BASE, EXPORTS);
    let mut peer = site.peer("/open");
    let address = site.running.as_ref().unwrap().address;
    site.wait(async {
        let root = peer.root.clone();
        peer.getattr(&root).await.unwrap();
        let args = opaque(root.data.as_ref());
        let mut raw = Raw::connect(address).await;
        raw.send_anonymous_call(7, [NFS, 3, GETATTR], &args).await;
        // xid, REPLY, MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK
        assert_eq!(raw.reply_words().await.unwrap(), [7, 1, 1, 1, 5]);
        raw.send_anonymous_call(8, [NFS, 3, 0], &[]).await;
        assert_eq!(raw.reply_words().await.unwrap(), [8, 1, 0, 0, 0, 0], "NULL");
    });
    site.stop();
}
