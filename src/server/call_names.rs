//! Names of programs, procedures and status codes, for figures.

use crate::wire::mount3::MountStatus;
use crate::wire::nfs3::Status;
use crate::wire::nlm4::NlmStatus;

/// How the calls of a program are named in figures: the values of labels, which no client chooses.
#[derive(Debug, Clone, Copy)]
pub struct CallNames {
    /// The program.
    pub program: &'static str,
    /// Its procedures by number; empty for a number without a procedure.
    pub procedures: &'static [&'static str],
    /// Status codes of its results.
    pub statuses: &'static [(u32, &'static str)],
    /// The status code in the results of a procedure, given their beginning; `None` for results
    /// without one.
    pub status_of: fn(u32, &[u8]) -> Option<u32>,
}

impl CallNames {
    /// A program whose calls are not told apart.
    pub const OTHER: Self =
        Self { program: "other", procedures: &[], statuses: &[], status_of: |_, _| None };

    /// NFS version 3.
    pub(super) const NFS: Self = Self {
        program: "nfs",
        procedures: &[
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
        ],
        statuses: &[
            (Status::Ok as u32, "ok"),
            (Status::Perm as u32, "perm"),
            (Status::NoEnt as u32, "noent"),
            (Status::Io as u32, "io"),
            (Status::Acces as u32, "acces"),
            (Status::Exist as u32, "exist"),
            (Status::Xdev as u32, "xdev"),
            (Status::NotDir as u32, "notdir"),
            (Status::IsDir as u32, "isdir"),
            (Status::Inval as u32, "inval"),
            (Status::Fbig as u32, "fbig"),
            (Status::NoSpc as u32, "nospc"),
            (Status::Rofs as u32, "rofs"),
            (Status::Mlink as u32, "mlink"),
            (Status::NameTooLong as u32, "nametoolong"),
            (Status::NotEmpty as u32, "notempty"),
            (Status::Dquot as u32, "dquot"),
            (Status::Stale as u32, "stale"),
            (Status::BadHandle as u32, "badhandle"),
            (Status::NotSync as u32, "not_sync"),
            (Status::NotSupp as u32, "notsupp"),
            (Status::TooSmall as u32, "toosmall"),
            (Status::ServerFault as u32, "serverfault"),
            (Status::BadType as u32, "badtype"),
            (Status::Jukebox as u32, "jukebox"),
        ],
        status_of: |procedure, results| if procedure == 0 { None } else { word(results) },
    };

    /// MOUNT version 3; only MNT has a status.
    pub(super) const MOUNT: Self = Self {
        program: "mount",
        procedures: &["null", "mnt", "dump", "umnt", "umntall", "export"],
        statuses: &[
            (0, "ok"),
            (MountStatus::Perm as u32, "perm"),
            (MountStatus::NoEnt as u32, "noent"),
            (MountStatus::Io as u32, "io"),
            (MountStatus::Acces as u32, "acces"),
            (MountStatus::NotDir as u32, "notdir"),
            (MountStatus::Inval as u32, "inval"),
            (MountStatus::NameTooLong as u32, "nametoolong"),
            (MountStatus::NotSupp as u32, "notsupp"),
            (MountStatus::ServerFault as u32, "serverfault"),
        ],
        status_of: |procedure, results| if procedure == 1 { word(results) } else { None },
    };

    /// NLM version 4; the status follows the cookie.
    pub(super) const NLM: Self = Self {
        program: "nlm",
        procedures: &[
            "null", "test", "lock", "cancel", "unlock", "granted", "", "", "", "", "", "", "", "",
            "", "", "", "", "", "", "share", "unshare", "nm_lock", "free_all",
        ],
        statuses: &[
            (NlmStatus::Granted as u32, "ok"),
            (NlmStatus::Denied as u32, "denied"),
            (NlmStatus::DeniedNoLocks as u32, "denied_nolocks"),
            (NlmStatus::DeniedGracePeriod as u32, "denied_grace_period"),
            (NlmStatus::ReadOnly as u32, "rofs"),
            (NlmStatus::StaleHandle as u32, "stale_fh"),
            (NlmStatus::TooLarge as u32, "fbig"),
            (NlmStatus::Failed as u32, "failed"),
        ],
        status_of: |_, results| {
            let cookie = usize::try_from(word(results)?).ok()?;
            word(results.get(4 + cookie.checked_next_multiple_of(4)?..)?)
        },
    };
}

/// The number at the beginning.
fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mount3::MountProcedure;
    use crate::wire::nfs3::Procedure;
    use crate::wire::nlm4::NlmProcedure;

    #[test]
    fn each_procedure_has_its_name() {
        let nfs = Procedure::ALL.map(|procedure| format!("{procedure:?}").to_lowercase());
        assert_eq!(nfs.as_slice(), CallNames::NFS.procedures);
        for (number, name) in (0..).zip(CallNames::MOUNT.procedures) {
            let known = MountProcedure::from_number(number).unwrap();
            assert_eq!(format!("{known:?}").to_lowercase(), *name);
        }
        for (number, name) in (0..).zip(CallNames::NLM.procedures) {
            let known = NlmProcedure::from_number(number).map(|known| format!("{known:?}"));
            let known = known.unwrap_or_default().to_lowercase();
            assert_eq!(known, name.replace('_', ""), "{number}");
        }
    }

    #[test]
    fn the_status_is_read_from_the_results() {
        let of =
            |names: CallNames, procedure, results: &[u8]| (names.status_of)(procedure, results);
        let noent = [0, 0, 0, 2, 7, 7];
        assert_eq!(of(CallNames::NFS, 3, &noent), Some(2));
        assert_eq!(of(CallNames::NFS, 0, b""), None);
        assert_eq!(of(CallNames::MOUNT, 1, &noent), Some(2));
        assert_eq!(of(CallNames::MOUNT, 5, &noent), None);
        // A cookie of two bytes, padded to four.
        assert_eq!(of(CallNames::NLM, 2, &[0, 0, 0, 2, 9, 9, 0, 0, 0, 0, 0, 1]), Some(1));
        assert_eq!(of(CallNames::NLM, 2, &[0xff; 8]), None);
        assert_eq!(of(CallNames::NLM, 0, b""), None);
    }
}
