//! Reads the mount table. It never accesses a mount, because that blocks if its server is gone.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
#[cfg(not(target_os = "linux"))]
use std::process::Command;

use super::error::MountError;

/// The port of NFS if the options have none.
const NFS_PORT: u16 = 2049;

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    /// The type of the filesystem.
    pub(crate) kind: String,
    /// The source of the mount, such as `HOST:PATH`.
    pub(crate) source: String,
    /// The device number of the filesystem, `MAJOR:MINOR`, if the system reports it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) device: String,
    /// The address of the NFS server, if the system reports it.
    pub(crate) server: Option<SocketAddr>,
}

impl Mounted {
    /// Whether it is an NFS mount.
    pub(crate) fn is_nfs(&self) -> bool {
        self.kind.starts_with("nfs")
    }

    /// Whether it is an NFS mount from `server`, as far as the system reports it.
    pub(crate) fn is_from(&self, server: SocketAddr) -> bool {
        self.is_nfs() && self.server.is_none_or(|at| at == server)
    }

    /// Whether it is the server's export `path`, up to repeated slashes.
    pub(crate) fn is_export(&self, path: &str) -> bool {
        let mounted = self.source.find(":/").map(|colon| &self.source[colon + 1..]);
        mounted.is_some_and(|mounted| names(mounted).eq(names(path)))
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// All mounts, the most recent one last.
pub(crate) fn mounted() -> Result<Vec<Mounted>, MountError> {
    read().map_err(|error| MountError::caused("cannot tell what is mounted", &error))
}

/// The mount visible at `dir` itself.
pub(crate) fn at(dir: &Path) -> Result<Option<Mounted>, MountError> {
    Ok(mounted()?.into_iter().rfind(|mounted| mounted.dir == dir))
}

#[cfg(target_os = "linux")]
fn read() -> std::io::Result<Vec<Mounted>> {
    mounted_for("self")
}

/// All mounts in the mount namespace of a process.
#[cfg(target_os = "linux")]
pub(super) fn mounted_for(process: &str) -> std::io::Result<Vec<Mounted>> {
    let table = std::fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(of_mountinfo).collect())
}

#[cfg(not(target_os = "linux"))]
fn read() -> std::io::Result<Vec<Mounted>> {
    let table = Command::new("/sbin/mount").output()?.stdout;
    Ok(table.split(|byte| *byte == b'\n').filter_map(of_mount).collect())
}

/// A mount in this process's namespace, with the part of the filesystem that it shows.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountTableEntry {
    pub(super) id: u64,
    /// The device number of the filesystem, `MAJOR:MINOR`.
    pub(super) device: String,
    /// The mounted directory, as a path in the filesystem.
    pub(super) root: PathBuf,
    pub(super) dir: PathBuf,
    /// The options of the mount, without those of the filesystem.
    pub(super) options: String,
}

/// All mounts in this process's namespace, the most recent one last.
#[cfg(target_os = "linux")]
pub(super) fn entries() -> std::io::Result<Vec<MountTableEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(entry).collect())
}

#[cfg(target_os = "linux")]
fn entry(line: &[u8]) -> Option<MountTableEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || Some(String::from_utf8_lossy(fields.next()?).into_owned());
    let (id, _parent, device) = (text()?.parse().ok()?, text()?, text()?);
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescaped(fields.next()?))));
    let (root, dir) = (path()?, path()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(MountTableEntry { id, device, root, dir, options })
}

/// Parses a line of `/proc/self/mountinfo`: see proc_pid_mountinfo(5).
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn of_mountinfo(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let dir = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    // A dash ends the optional fields.
    fields.by_ref().find(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescaped(field)).into_owned();
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    let options = text(fields.next().unwrap_or_default());
    let server = kind.starts_with("nfs").then(|| server(&options)).flatten();
    Some(Mounted { dir, kind, source, device, server })
}

/// The address of the server in the options of an NFS mount.
fn server(options: &str) -> Option<SocketAddr> {
    let value = |name: &str| {
        let mut pairs = options.split(',').filter_map(|option| option.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let ip: IpAddr = value("addr")?.parse().ok()?;
    let port = value("port").map_or(Some(NFS_PORT), |port| port.parse().ok())?;
    Some(SocketAddr::new(ip, port))
}

/// Decodes a field: space, tab, newline and backslash are octal escapes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let digits =
            after.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) if *first == b'\\' => {
                let number =
                    digits.iter().fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
                bytes.push(u8::try_from(number).unwrap_or(b'?'));
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Parses a line of macOS's `mount`: `127.0.0.1:/ on /Users/ann/agent (nfs, nodev)`.
#[cfg_attr(target_os = "linux", allow(dead_code))]
fn of_mount(line: &[u8]) -> Option<Mounted> {
    let line = String::from_utf8_lossy(line);
    let (line, options) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (source, dir) = line.split_once(" on ")?;
    let kind = options.split(',').next()?;
    Some(Mounted {
        dir: dir.into(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        device: String::new(),
        server: None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mounted, of_mount, of_mountinfo};

    fn line(line: &str) -> Mounted {
        of_mountinfo(line.as_bytes()).unwrap()
    }

    #[test]
    fn mountinfo_tells_the_server() {
        let found = line(
            "61 28 0:52 / /mnt/agent rw,nosuid,nodev,relatime shared:3 - nfs 127.0.0.1:/ \
             rw,vers=3,rsize=1048576,hard,nolock,proto=tcp,port=40123,timeo=600,retrans=2,\
             sec=sys,mountaddr=127.0.0.1,mountvers=3,mountport=40123,mountproto=tcp,\
             local_lock=all,addr=127.0.0.1",
        );
        assert_eq!((found.dir.as_path(), &*found.source), (Path::new("/mnt/agent"), "127.0.0.1:/"));
        assert!(found.is_nfs() && found.is_from("127.0.0.1:40123".parse().unwrap()));
        assert!(!found.is_from("127.0.0.1:40124".parse().unwrap()));
        let usual = line("61 28 0:52 / /m rw - nfs [::1]:/ rw,vers=3,mountport=2049,addr=::1");
        assert_eq!(usual.server, Some("[::1]:2049".parse().unwrap()));
    }

    #[test]
    fn what_is_not_ours_is_read_too() {
        let disk = line("22 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw");
        assert_eq!((&*disk.kind, disk.server, disk.is_nfs()), ("ext4", None, false));
        let named = line(r"9 1 0:4 / /a\040b\011c\012d\134e rw - tmpfs none rw,addr=1.2.3.4");
        assert_eq!((named.dir.as_path(), named.server), (Path::new("/a b\tc\nd\\e"), None));
        let unnamed = line("9 1 0:4 / /a rw - nfs x:/ rw,addr=somewhere,port=1");
        assert_eq!(unnamed.server, None);
        for odd in ["", "22 1 254:1 / /", "22 1 254:1 / / rw shared:1", "22 1 2 / / rw - ext4"] {
            assert_eq!(of_mountinfo(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn the_lines_of_macos_are_read() {
        let line = b"127.0.0.1:/ on /Users/ann/my (agent) (nfs, nodev, nosuid, mounted by ann)";
        let found = of_mount(line).unwrap();
        assert_eq!(found.dir, Path::new("/Users/ann/my (agent)"));
        assert!(found.is_from("127.0.0.1:5".parse().unwrap()));
        let disk = of_mount(b"/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)");
        assert!(!disk.unwrap().is_nfs());
        assert_eq!(of_mount(b"map auto_home"), None);
    }
}
