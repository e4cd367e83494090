//! Words what a user can do about a failed mount.

use std::borrow::Cow;
use std::path::Path;

use super::error::CliError;
use super::mount_events::left_to_copy;
use super::shell_words::{as_root, quoted};
use super::text;
use crate::mounting::address;
use crate::mounting::error::{
    MountAdvice, MountError, PlaceAdvice, ServerAdvice, ServerSetting, SystemAdvice,
};

impl From<MountError> for CliError {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Failed { what, advice: None } => Self::new(what),
            MountError::Failed { what, advice: Some(advice) } => {
                Self::new(what).with_hint(hint(advice))
            }
            MountError::Session(error) => error.into(),
            MountError::Base { path, source } => Self::base(&path, &source),
            MountError::Connect(error) => error.into(),
            MountError::NotClosed { ref session, left } => {
                let what = format!("{error}{}", left_to_copy(left));
                Self::new(what).with_hint(format_args!(
                    "the next `acetate mount` continues with it; the server's log is {}.log",
                    session.display()
                ))
            }
        }
    }
}

fn hint(advice: MountAdvice) -> Cow<'static, str> {
    match advice {
        MountAdvice::Server(advice) => about_server(advice),
        MountAdvice::Place(advice) => about_place(advice),
        MountAdvice::System(advice) => about_system(advice),
    }
}

fn about_server(advice: ServerAdvice) -> Cow<'static, str> {
    let fixed = match advice {
        ServerAdvice::StopToHideMore => "stop that server first, to hide more",
        ServerAdvice::MountReadOnly => "mount it with --read-only, or unmount it elsewhere first",
        ServerAdvice::MountAsItSays => "mount it as that server said, or stop the server first",
        ServerAdvice::LeaveOut(setting) => match setting {
            ServerSetting::KeepOriginals => "leave --keep-originals out, or stop that server",
            ServerSetting::Checkpoints => {
                "leave --checkpoints and --keep-checkpoints out, or stop that server"
            }
            ServerSetting::Listen => "leave --listen out to mount from that server",
            ServerSetting::RootSquash(true) => "leave --root-squash out to mount from that server",
            ServerSetting::RootSquash(false) => {
                "leave --no-root-squash out to mount from that server"
            }
        },
        ServerAdvice::StopForBase(base) => {
            return format!("stop that server first, to use the base {}", base.display()).into();
        }
        ServerAdvice::MountExports { file, address } => {
            let how = address.map(|near| {
                let (options, host) = (address::options(near), address::host(near));
                format!("; then: mount -t nfs -o {options} {host}:PATH DIR")
            });
            let (file, how) = (file.display(), how.unwrap_or_default());
            return format!("`acetate config check {file}` shows the PATH of each export{how}")
                .into();
        }
        ServerAdvice::StopHiddenLater(dir) => {
            let dir = shell_path(&dir);
            return format!("once they have ended, stop its server: acetate umount {dir}").into();
        }
        ServerAdvice::Printed(hint) => return hint.into(),
        ServerAdvice::RunsAs(user) => {
            return format!("the server runs as {user}, who called sudo; --as-root keeps root")
                .into();
        }
        ServerAdvice::ReadLog(session) => {
            let session = session.display();
            return format!("its log is {session}.log; check the session: acetate check").into();
        }
    };
    fixed.into()
}

/// A path for a command line that a user copies to a shell; control characters are escaped.
fn shell_path(path: &Path) -> String {
    quoted(&text::line(path.as_os_str().as_encoded_bytes()))
}

fn about_place(advice: PlaceAdvice) -> Cow<'static, str> {
    let fixed = match advice {
        PlaceAdvice::MakeSessionDirectory => "create the directory of the session first",
        PlaceAdvice::GiveEmptyDirectory => "give an empty directory",
        PlaceAdvice::CheckPath => "a component of the path is not a directory",
        PlaceAdvice::MountElsewhere => "mount at an empty directory of its own, say /mnt/agent",
        PlaceAdvice::NameRealPath => "name that directory by its own path",
        PlaceAdvice::StopMover { is_run: false } => {
            "stop the process that moves it, then mount again"
        }
        PlaceAdvice::StopMover { is_run: true } => "stop the process that moves it, then run again",
        PlaceAdvice::MakeDirectory(dir) => {
            return format!("make it first: mkdir -p {}", shell_path(&dir)).into();
        }
        PlaceAdvice::OwnDirectory { user } => {
            return format!("choose a directory of {user}'s or root's (--as-root takes any)")
                .into();
        }
        PlaceAdvice::ChooseOtherOrUnmount(dir) => {
            let dir = shell_path(&dir);
            return format!("choose another directory, or unmount it first: acetate umount {dir}")
                .into();
        }
        PlaceAdvice::EndUsers(dir) => {
            return format!(
                "end these processes, or have them leave the directory, then: acetate umount {} \
                 (with --lazy the mount is hidden at once, and they may finish)",
                shell_path(&dir)
            )
            .into();
        }
    };
    fixed.into()
}

fn about_system(advice: SystemAdvice) -> Cow<'static, str> {
    let fixed = match advice {
        SystemAdvice::LoadNfsClient => {
            "this kernel has no NFS client: `modprobe nfs` loads it where it is a module"
        }
        SystemAdvice::MountOutsideContainer => {
            "the kernel or a security module refused it; in a container, mount outside of it"
        }
        SystemAdvice::CheckOptions => {
            "an option is wrong, or the NFS client is missing: apt install nfs-common"
        }
        SystemAdvice::CheckFirewall => {
            "the server was not reached: check the firewall rules for the loopback address"
        }
        SystemAdvice::MountWithoutNamespace => {
            "a container may forbid it; --at DIR mounts at a directory without one, and the base \
             stays reachable by its own path"
        }
        SystemAdvice::LeaveUserNamespace => {
            "mount outside of it (of the rootless container, of `unshare`), and pass the \
             mounted directory in"
        }
        SystemAdvice::AddCapability => {
            "start the container with --cap-add SYS_ADMIN, or mount outside of it; a Docker \
             volume needs neither (`acetate serve` prints how)"
        }
        SystemAdvice::BecomeRoot => {
            return format!("{} (a user namespace does not help with NFS)", as_root()).into();
        }
        SystemAdvice::OwnDirectoryOrRoot => {
            return format!("mount at a directory of your own, or: {}", as_root()).into();
        }
        SystemAdvice::NewerKernel => {
            "Linux 5.19 and later can; without --sandbox, the session still covers its base"
        }
        SystemAdvice::EnableLandlock => {
            "Landlock has to be in CONFIG_LSM or in lsm= on the kernel's command line; without \
             --sandbox, the session still covers its base"
        }
    };
    fixed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(advice: impl Into<MountAdvice>) -> String {
        hint(advice.into()).into_owned()
    }

    #[test]
    fn who_is_not_root_is_told_the_same_command_with_sudo() {
        let said = said(SystemAdvice::BecomeRoot);
        assert!(said.starts_with("sudo "), "{said}");
        assert!(said.ends_with(" (a user namespace does not help with NFS)"), "{said}");
    }

    #[test]
    fn an_option_that_a_running_server_decides_is_named() {
        let squash = |on| said(ServerAdvice::LeaveOut(ServerSetting::RootSquash(on)));
        assert_eq!(squash(true), "leave --root-squash out to mount from that server");
        assert_eq!(squash(false), "leave --no-root-squash out to mount from that server");
    }

    #[test]
    fn a_directory_in_a_hint_cannot_control_the_terminal() {
        let said = said(PlaceAdvice::MakeDirectory("/a\u{1b}[2J".into()));
        assert_eq!(said, "make it first: mkdir -p '/a\\u{1b}[2J'");
    }
}
