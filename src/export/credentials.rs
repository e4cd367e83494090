//! Access checks and id mapping of an export: `clients`, `secure`, `sec`, squashing, and id maps,
//! as in exports(5). Pure functions of a caller and the export's options.

use std::borrow::Cow;

use crate::config::{ClientNetworks, ExportConfig, IdMap, SquashMode};
use crate::vfs::{Attr, Caller, Flavor, FsError, SetAttr};

/// Which callers an export accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    clients: ClientNetworks,
    needs_privileged_port: bool,
    takes_sys: bool,
    takes_none: bool,
}

/// Why a caller is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its address is not in `clients`.
    #[error("the client's address is not among those of the export")]
    Address,
    /// The export is `secure`, and the client's port is unprivileged.
    #[error("the client uses an unprivileged port (1024 or above), and the export is `secure`")]
    Port,
    /// The export does not accept this flavor (`sec`).
    #[error("the export does not take this kind of credentials")]
    Flavor,
}

impl Admission {
    /// The rules of an export.
    pub fn new(export: &ExportConfig) -> Self {
        Self {
            clients: export.clients.clone(),
            // On other systems clients do not use privileged ports.
            needs_privileged_port: cfg!(target_os = "linux") && export.options.is_secure,
            takes_sys: export.options.takes_sys,
            takes_none: export.options.takes_none,
        }
    }

    /// Whether the export accepts this flavor.
    pub fn takes(&self, flavor: Flavor) -> bool {
        match flavor {
            Flavor::Sys => self.takes_sys,
            Flavor::None => self.takes_none,
        }
    }

    /// The accepted flavors, in order of preference.
    pub fn flavors(&self) -> Vec<Flavor> {
        [Flavor::Sys, Flavor::None].into_iter().filter(|flavor| self.takes(*flavor)).collect()
    }

    /// Checks a caller. Commands of the session's owner are always admitted.
    ///
    /// # Errors
    /// The first failed check. The address comes first, so that other hosts learn nothing else.
    pub fn admit(&self, caller: &Caller) -> Result<(), Refused> {
        if caller.is_owner {
            return Ok(());
        }
        if !self.clients.contain(caller.client.ip()) {
            return Err(Refused::Address);
        }
        if self.needs_privileged_port && !caller.has_privileged_port() {
            return Err(Refused::Port);
        }
        if self.takes(caller.flavor) { Ok(()) } else { Err(Refused::Flavor) }
    }
}

/// Maps and squashes the ids of callers, and maps owners back.
///
/// Ids are mapped before they are squashed. root_squash applies to the server's uid 0, so a
/// client's uid 0 that maps to an ordinary user is that user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Squash {
    mode: SquashMode,
    anon_uid: u32,
    anon_gid: u32,
    uids: Option<IdMap>,
    gids: Option<IdMap>,
}

impl Squash {
    /// The rules of an export.
    pub fn new(export: &ExportConfig) -> Self {
        let options = export.options;
        Self {
            mode: options.squash,
            anon_uid: options.anon_uid,
            anon_gid: options.anon_gid,
            uids: export.uids.clone(),
            gids: export.gids.clone(),
        }
    }

    /// Maps and squashes a caller. Commands of the session's owner keep their ids.
    pub fn apply<'a>(&self, caller: &'a Caller) -> Cow<'a, Caller> {
        if caller.is_owner {
            return Cow::Borrowed(caller);
        }
        let is_nobody = self.mode == SquashMode::All || caller.flavor == Flavor::None;
        let (uid, gid, gids) = match is_nobody {
            true => (self.anon_uid, self.anon_gid, Vec::new()),
            false => {
                let gids = caller.gids.iter().map(|gid| self.gid(*gid)).collect();
                (self.uid(caller.uid), self.gid(caller.gid), gids)
            }
        };
        if (uid, gid) == (caller.uid, caller.gid) && gids == caller.gids {
            return Cow::Borrowed(caller);
        }
        Cow::Owned(Caller { uid, gid, gids, ..caller.clone() })
    }

    /// Maps the ids of a SETATTR to server ids.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: an id is not in the map, as in a user namespace.
    pub fn set(&self, set: SetAttr) -> Result<SetAttr, FsError> {
        let uid = to_server(self.uids.as_ref(), set.uid)?;
        let gid = to_server(self.gids.as_ref(), set.gid)?;
        Ok(SetAttr { uid, gid, ..set })
    }

    /// Maps the ids of a new object to server ids. Unmapped ids are dropped, because some clients
    /// send owner and group with every new object.
    pub fn set_new(&self, set: SetAttr) -> SetAttr {
        let uid = to_server(self.uids.as_ref(), set.uid).unwrap_or(None);
        let gid = to_server(self.gids.as_ref(), set.gid).unwrap_or(None);
        SetAttr { uid, gid, ..set }
    }

    /// Maps owners to client ids; unmapped owners become the anonymous user.
    pub fn show(&self, attr: Attr) -> Attr {
        let shown = |map: &Option<IdMap>, id| match map {
            Some(map) => map.to_client(id).unwrap_or(Caller::NOBODY),
            None => id,
        };
        Attr { uid: shown(&self.uids, attr.uid), gid: shown(&self.gids, attr.gid), ..attr }
    }

    fn uid(&self, id: u32) -> u32 {
        self.one(self.uids.as_ref(), id, self.anon_uid)
    }

    fn gid(&self, id: u32) -> u32 {
        self.one(self.gids.as_ref(), id, self.anon_gid)
    }

    /// Maps and squashes one id of an AUTH_SYS caller.
    fn one(&self, map: Option<&IdMap>, id: u32, anon: u32) -> u32 {
        let mapped = match map {
            Some(map) => map.to_server(id),
            // An id of -1 means "no change" in a chown, so it cannot be an owner.
            None => Some(id).filter(|id| *id != u32::MAX),
        };
        mapped.filter(|id| *id != 0 || self.mode != SquashMode::Root).unwrap_or(anon)
    }
}

fn to_server(map: Option<&IdMap>, id: Option<u32>) -> Result<Option<u32>, FsError> {
    match (map, id) {
        (Some(map), Some(id)) => map.to_server(id).map(Some).ok_or(FsError::Invalid),
        (_, id) => Ok(id),
    }
}
