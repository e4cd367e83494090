//! Drops the rights of a process before it runs a sandboxed command.

use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessError, AccessFs, CompatError, CompatLevel, Compatible, HandleAccessError,
    HandleAccessesError, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::termios::isatty;
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, remove_capability_from_bounding_set,
    set_capabilities,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::mounting::error::{MountError, SystemAdvice};
use crate::system_error::words;

/// The least Landlock ABI: since Linux 5.19, files can be renamed to other directories.
const LEAST: ABI = ABI::V2;

/// The newest Landlock ABI that is used.
const MOST: ABI = ABI::V6;

/// Parts of `/proc` that control the whole system.
const STEERING: [&str; 5] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// Contains `0` if this kernel does not let programs inject input into their terminal (TIOCSTI).
const TYPING: &str = "/proc/sys/dev/tty/legacy_tiocsti";

/// Checks that this kernel supports a sandbox.
///
/// # Errors
/// The kernel lacks a feature; the error names it.
pub(crate) fn check() -> Result<(), MountError> {
    rules().and_then(Ruleset::create).map(drop).map_err(|error| no_landlock(&error))?;
    for namespace in ["pid", "ipc", "net", "mnt"] {
        if fs::symlink_metadata(format!("/proc/self/ns/{namespace}")).is_err() {
            let what = format!("no sandbox: this kernel has no {namespace} namespaces");
            return Err(MountError::new(what));
        }
    }
    Ok(())
}

fn no_landlock(error: &RulesetError) -> MountError {
    use {CompatError::Access, HandleAccessError::Compat, HandleAccessesError::Fs};
    let mut cause: Option<&dyn Error> = Some(error);
    let refusal = loop {
        match cause {
            Some(error) => match error.downcast_ref::<io::Error>() {
                Some(error) => break format!(": {}", words(error)),
                None => cause = error.source(),
            },
            None => break String::new(),
        }
    };
    match error {
        RulesetError::HandleAccesses(Fs(Compat(Access(AccessError::PartiallyCompatible {
            ..
        })))) => MountError::new(
            "no sandbox: this kernel's Landlock cannot let a program rename files to other \
             directories",
        )
        .with_advice(SystemAdvice::NewerKernel),
        RulesetError::HandleAccesses(_) => {
            MountError::new("no sandbox: this kernel has no Landlock")
                .with_advice(SystemAdvice::EnableLandlock)
        }
        _ => MountError::new(format_args!(
            "no sandbox: the kernel refuses its Landlock rules{refusal}"
        )),
    }
}

fn rules() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))?
        .scope(Scope::from_all(MOST))
}

/// Makes the kernel kill this process when its parent ends.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Sets the process name, which was derived from `/proc/self/exe`.
pub(crate) fn set_process_name() {
    let _named = rustix::thread::set_name(c"acetate");
}

/// Mounts a `/proc` for the process namespace, with the parts that control the system read-only.
///
/// # Errors
/// `/proc` cannot be mounted.
pub(crate) fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("acetate", "/proc", "proc", flags, c"")?;
    for path in STEERING.iter().filter(|path| Path::new(path).exists()) {
        mount_bind(*path, *path)?;
        mount_remount(*path, MountFlags::BIND | MountFlags::RDONLY | flags, "")?;
    }
    Ok(())
}

/// Moves this process to a new network namespace with only a loopback interface.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn leave_network() -> io::Result<()> {
    // Unsafe only with CLONE_FILES, which detaches the descriptor table from other threads.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    let mut socket = Socket::new(Domain::from(16), Type::RAW, Some(Protocol::from(0)))?;
    // rtnetlink(7): RTM_NEWLINK sets IFF_UP on interface 1 and requests an acknowledgement.
    let mut message = Vec::new();
    message.extend(32u32.to_ne_bytes());
    message.extend(16u16.to_ne_bytes());
    message.extend(5u16.to_ne_bytes());
    message.extend([1u32, 0].map(u32::to_ne_bytes).concat());
    message.extend([0u32, 1, 1, 1].map(u32::to_ne_bytes).concat());
    socket.write_all(&message)?;
    let mut answer = [0u8; 64];
    let length = socket.read(&mut answer)?;
    let code = answer.get(16..20).filter(|_| length >= 20).and_then(|code| code.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Starts a new session without the terminal if the kernel allows TIOCSTI; returns whether it did.
pub(crate) fn leave_terminal() -> bool {
    let is_safe = fs::read_to_string(TYPING).is_ok_and(|word| word.trim() == "0");
    let stdio = (io::stdin(), io::stdout(), io::stderr());
    let has_terminal = [stdio.0.as_fd(), stdio.1.as_fd(), stdio.2.as_fd()].iter().any(isatty);
    !is_safe && has_terminal && setsid().is_ok()
}

/// Restricts writes of this thread and its children to paths below `writable`.
///
/// # Errors
/// The kernel does not support it.
pub(crate) fn restrict(writable: &[PathBuf]) -> Result<(), MountError> {
    let beneath = |path: &Path, access| -> Result<_, MountError> {
        let open = PathFd::new(path).map_err(|error| {
            MountError::caused(format_args!("no sandbox: {}", path.display()), &error)
        })?;
        Ok(PathBeneath::new(open, access))
    };
    let failed = |error: RulesetError| no_landlock(&error);
    let mut rules = rules().and_then(Ruleset::create).map_err(failed)?;
    rules = rules.add_rule(beneath(Path::new("/"), AccessFs::from_read(MOST))?).map_err(failed)?;
    for path in writable {
        rules = rules.add_rule(beneath(path, AccessFs::from_all(MOST))?).map_err(failed)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(MountError::new("no sandbox: this kernel has no Landlock"));
    }
    Ok(())
}

/// Empties the capability bounding set of this thread. With `at_once`, also drops the capabilities
/// that the thread has now.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn drop_capabilities(at_once: bool) -> io::Result<()> {
    for number in 0..CapabilitySet::all().bits().count_ones().max(64) {
        let Some(bit) = 1u64.checked_shl(number) else { break };
        // The kernel has no further capabilities.
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(bit)).is_err() {
            break;
        }
    }
    if at_once {
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(error: AccessError<AccessFs>, advice: SystemAdvice) -> String {
        let error = HandleAccessesError::Fs(HandleAccessError::Compat(CompatError::Access(error)));
        let error = no_landlock(&error.into());
        assert_eq!(error.advice(), Some(&advice.into()));
        error.to_string()
    }

    #[test]
    fn it_says_what_the_kernel_cannot_do_without_the_words_of_a_library() {
        let access = AccessFs::from_all(LEAST);
        let missing = AccessError::Incompatible { access };
        let said = refused(missing, SystemAdvice::EnableLandlock);
        assert_eq!(said, "no sandbox: this kernel has no Landlock");
        let partial = AccessError::PartiallyCompatible { access, incompatible: access };
        let said = refused(partial, SystemAdvice::NewerKernel);
        assert!(said.ends_with("rename files to other directories"), "{said}");
        assert!(!said.contains("BitFlags") && !said.contains("access-rights"), "{said}");
    }
}
