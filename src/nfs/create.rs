//! CREATE, MKDIR, SYMLINK, MKNOD.

use super::{HandlerResult, Handles, Nfs, attr, reply_wcc};
use crate::vfs::{
    Caller, CreateHow, CreateVerifier, Created, Device, FsError, NewNode, Outcome, SetAttr, Vfs,
    Wcc,
};
use crate::wire::nfs3::results::{self, Reply};
use crate::wire::nfs3::{MAX_TARGET_BYTES, Sattr, SpecData, WccData, args};

type CreateResult = HandlerResult<results::CreateOk, WccData>;

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// CREATE (RFC 1813 §3.3.8).
    pub(super) async fn create(&self, caller: &Caller, args: args::CreateArgs) -> CreateResult {
        let dir = self.handles.decode(&args.place.dir)?;
        let how = match create_how(args.how) {
            Ok(how) => how,
            Err(error) => return self.refuse(caller, &dir, error).await,
        };
        let outcome = self.vfs.create(caller, &dir, &args.place.name, how).await;
        Ok(self.made(outcome))
    }

    /// MKDIR (RFC 1813 §3.3.9).
    pub(super) async fn mkdir(&self, caller: &Caller, args: args::MkdirArgs) -> CreateResult {
        let new = attr::set_attr(args.attributes).map(|set| (NewNode::Directory, set));
        self.make(caller, args.place, new).await
    }

    /// SYMLINK (RFC 1813 §3.3.10).
    pub(super) async fn symlink(&self, caller: &Caller, args: args::SymlinkArgs) -> CreateResult {
        let new = if args.target.is_empty() || args.target.contains(&0) {
            Err(FsError::Invalid)
        } else if args.target.len() > MAX_TARGET_BYTES {
            Err(FsError::NameTooLong)
        } else {
            attr::set_attr(args.attributes).map(|set| (NewNode::Symlink(args.target), set))
        };
        self.make(caller, args.place, new).await
    }

    /// MKNOD (RFC 1813 §3.3.11); a type that other procedures create is `NFS3ERR_BADTYPE`.
    pub(super) async fn mknod(&self, caller: &Caller, args: args::MknodArgs) -> CreateResult {
        self.make(caller, args.place, special_file(args.what)).await
    }

    /// Creates `new`; on invalid arguments fails with the directory's attributes.
    async fn make(
        &self,
        caller: &Caller,
        place: args::DirOpArgs,
        new: Result<(NewNode, SetAttr), FsError>,
    ) -> CreateResult {
        let dir = self.handles.decode(&place.dir)?;
        match new {
            Ok((node, set)) => {
                let outcome = self.vfs.make_node(caller, &dir, &place.name, node, set).await;
                Ok(self.made(outcome))
            }
            Err(error) => self.refuse(caller, &dir, error).await,
        }
    }

    fn made(&self, outcome: Outcome<Created<V::Object>, Wcc>) -> Reply<results::CreateOk, WccData> {
        reply_wcc(outcome, |created, dir_wcc| results::CreateOk {
            object: Some(self.handles.encode(&created.object)),
            attributes: Some(attr::fattr(&created.attr)),
            dir_wcc,
        })
    }
}

fn create_how(how: args::CreateHow3) -> Result<CreateHow, FsError> {
    Ok(match how {
        args::CreateHow3::Unchecked(sattr) => CreateHow::Unchecked(attr::set_attr(sattr)?),
        args::CreateHow3::Guarded(sattr) => CreateHow::Guarded(attr::set_attr(sattr)?),
        args::CreateHow3::Exclusive(verifier) => CreateHow::Exclusive(CreateVerifier(verifier)),
    })
}

fn special_file(what: args::MknodData) -> Result<(NewNode, SetAttr), FsError> {
    let (node, sattr): (NewNode, Sattr) = match what {
        args::MknodData::Character(sattr, spec) => (NewNode::Character(device(spec)), sattr),
        args::MknodData::Block(sattr, spec) => (NewNode::Block(device(spec)), sattr),
        args::MknodData::Socket(sattr) => (NewNode::Socket, sattr),
        args::MknodData::Fifo(sattr) => (NewNode::Fifo, sattr),
        args::MknodData::Other(_) => return Err(FsError::BadType),
    };
    Ok((node, attr::set_attr(sattr)?))
}

fn device(spec: SpecData) -> Device {
    Device { major: spec.major, minor: spec.minor }
}
