//! `nfs3_client` with paths, and replies as results.

use std::net::SocketAddr;

use nfs3_client::nfs3_types::nfs3::{
    CREATE3args, GETATTR3args, LINK3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result,
    READ3args, READDIRPLUS3args, READDIRPLUS3resok, REMOVE3args, RENAME3args, RMDIR3args,
    SETATTR3args, SYMLINK3args, WRITE3args, WRITE3resok, cookieverf3, createhow3, diropargs3,
    fattr3, filename3, nfs_fh3, nfsstat3, sattr3, stable_how, symlinkdata3,
};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use tokio::net::TcpStream;

/// What a call gives a test.
pub type Result<T> = std::result::Result<T, nfsstat3>;

/// A mounted connection.
pub struct Peer {
    pub nfs: Nfs3Connection<TokioIo<TcpStream>>,
    pub root: nfs_fh3,
}

/// The result without the attributes of a failure.
pub fn plain<T, E>(result: Nfs3Result<T, E>) -> Result<T> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

/// A name in a directory.
pub fn entry<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3::from(name.as_bytes()) }
}

/// Only a mode.
pub fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

impl Peer {
    /// Connects and mounts `/`, with the credentials of a user.
    pub async fn connect(address: SocketAddr, uid: u32, gid: u32) -> Self {
        Self::mount(address, "/", uid, gid).await.unwrap()
    }

    /// The same of another export; `None` if it cannot be mounted.
    pub async fn mount(address: SocketAddr, path: &str, uid: u32, gid: u32) -> Option<Self> {
        let auth = auth_unix { uid, gid, ..auth_unix::default() };
        let builder = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", path);
        let nfs = builder
            .connect_from_privileged_port(false)
            .mount_port(address.port())
            .nfs3_port(address.port())
            .credential(opaque_auth::auth_unix(&auth))
            .mount()
            .await
            .ok()?;
        let root = nfs.root_nfs_fh3();
        Some(Self { nfs, root })
    }

    /// The handle of what is at a path.
    pub async fn at(&mut self, path: &str) -> nfs_fh3 {
        let mut found = self.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            found = self.lookup(&found, name).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        found
    }

    pub async fn lookup(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3> {
        let args = LOOKUP3args { what: entry(dir, name) };
        plain(self.nfs.lookup(&args).await.unwrap()).map(|found| found.object)
    }

    pub async fn getattr(&mut self, object: &nfs_fh3) -> Result<fattr3> {
        let args = GETATTR3args { object: object.clone() };
        plain(self.nfs.getattr(&args).await.unwrap()).map(|found| found.obj_attributes)
    }

    pub async fn setattr(&mut self, object: &nfs_fh3, new_attributes: sattr3) -> Result<()> {
        let guard = Nfs3Option::None;
        let args = SETATTR3args { object: object.clone(), new_attributes, guard };
        plain(self.nfs.setattr(&args).await.unwrap()).map(drop)
    }

    pub async fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<Vec<u8>> {
        let args = READ3args { file: file.clone(), offset, count };
        plain(self.nfs.read(&args).await.unwrap()).map(|read| read.data.to_vec())
    }

    pub async fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok> {
        let count = data.len() as u32;
        let data = Opaque::borrowed(data);
        let args = WRITE3args { file: file.clone(), offset, count, stable, data };
        plain(self.nfs.write(&args).await.unwrap())
    }

    pub async fn create(&mut self, dir: &nfs_fh3, name: &str, how: createhow3) -> Result<nfs_fh3> {
        let args = CREATE3args { where_: entry(dir, name), how };
        plain(self.nfs.create(&args).await.unwrap()).map(|made| made.obj.unwrap())
    }

    /// A new file with this content.
    pub async fn put(&mut self, dir: &nfs_fh3, name: &str, content: &str) -> nfs_fh3 {
        let file = self.create(dir, name, createhow3::UNCHECKED(mode(0o644))).await.unwrap();
        self.write(&file, 0, content.as_bytes(), stable_how::UNSTABLE).await.unwrap();
        file
    }

    pub async fn mkdir(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3> {
        let args = MKDIR3args { where_: entry(dir, name), attributes: mode(0o755) };
        plain(self.nfs.mkdir(&args).await.unwrap()).map(|made| made.obj.unwrap())
    }

    pub async fn symlink(&mut self, dir: &nfs_fh3, name: &str, target: &str) -> Result<nfs_fh3> {
        let symlink_data = target.as_bytes().into();
        let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data };
        let args = SYMLINK3args { where_: entry(dir, name), symlink };
        plain(self.nfs.symlink(&args).await.unwrap()).map(|made| made.obj.unwrap())
    }

    pub async fn remove(&mut self, dir: &nfs_fh3, name: &str) -> Result<()> {
        let args = REMOVE3args { object: entry(dir, name) };
        plain(self.nfs.remove(&args).await.unwrap()).map(drop)
    }

    pub async fn rmdir(&mut self, dir: &nfs_fh3, name: &str) -> Result<()> {
        let args = RMDIR3args { object: entry(dir, name) };
        plain(self.nfs.rmdir(&args).await.unwrap()).map(drop)
    }

    pub async fn rename(&mut self, from: (&nfs_fh3, &str), to: (&nfs_fh3, &str)) -> Result<()> {
        let args = RENAME3args { from: entry(from.0, from.1), to: entry(to.0, to.1) };
        plain(self.nfs.rename(&args).await.unwrap()).map(drop)
    }

    pub async fn link(&mut self, file: &nfs_fh3, dir: &nfs_fh3, name: &str) -> Result<()> {
        let args = LINK3args { file: file.clone(), link: entry(dir, name) };
        plain(self.nfs.link(&args).await.unwrap()).map(drop)
    }

    /// One page of READDIRPLUS.
    pub async fn readdirplus(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        dircount: u32,
        maxcount: u32,
    ) -> Result<READDIRPLUS3resok<'static>> {
        let cookieverf = cookieverf3::default();
        let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        plain(self.nfs.readdirplus(&args).await.unwrap())
    }

    /// All names in a directory but `.` and `..`, in order.
    pub async fn ls(&mut self, dir: &nfs_fh3) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.readdirplus(dir, cookie, 4096, 8192).await.unwrap().reply;
            for entry in page.entries.into_inner() {
                cookie = entry.cookie;
                names.push(String::from_utf8(entry.name.as_ref().to_vec()).unwrap());
            }
            if page.eof {
                break;
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}
