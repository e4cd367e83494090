//! What a sandboxed command of `run` can reach: a corpus of escapes, each of which changes nothing
//! outside. A directory stands in for the server's export, so that any kernel with Landlock runs
//! it; with the kernel's NFS client, without Landlock: integration/kernel/63-run-namespace.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::mounting::Place;
use super::unmounting::write_note;
use crate::support::skip::skip;

/// A user that is not root.
const USER: u32 = 65534;

/// What is outside of a sandbox, below a directory that is not in `/tmp`.
struct Outside {
    place: Place,
    dir: TempDir,
    /// What stands in for the session.
    upper: TempDir,
}

impl Outside {
    /// `None`, and a word on it, where there is no sandbox.
    fn new() -> Option<Self> {
        let place = Place::new("exit 1")?;
        let dir = TempDir::new_in("/var/tmp").unwrap();
        let upper = TempDir::new_in("/var/tmp").unwrap();
        let outside = Self { place, dir, upper };
        for name in ["base", "base/sub", "out", "open", "secret"] {
            fs::create_dir(outside.path(name)).unwrap();
        }
        for name in ["base/file", "base/sub/in", "out/file", "secret/key"] {
            fs::write(outside.path(name), format!("{name}\n")).unwrap();
        }
        fs::create_dir(outside.upper("sub")).unwrap();
        fs::write(outside.upper("file"), "upper\n").unwrap();
        symlink(outside.path("base"), outside.path("out/to-base")).unwrap();
        fs::copy("/bin/sh", outside.path("out/suid")).unwrap();
        for name in ["base", "base/sub", "base/file"] {
            chown(outside.path(name), Some(USER), Some(USER)).unwrap();
        }
        for name in ["out", "out/file", "open"] {
            chown(outside.path(name), Some(USER), Some(USER)).unwrap();
        }
        lchown(outside.path("out/to-base"), Some(USER), Some(USER)).unwrap();
        fs::set_permissions(outside.path("out/suid"), Permissions::from_mode(0o4755)).unwrap();
        fs::set_permissions(outside.dir.path(), Permissions::from_mode(0o755)).unwrap();
        let tried = outside.run(None, &[], "true");
        if said(&tried).contains("Landlock") {
            skip("this kernel has no Landlock");
            return None;
        }
        assert_eq!(tried.status.code(), Some(0), "{}", said(&tried));
        Some(outside)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn upper(&self, name: &str) -> PathBuf {
        self.upper.path().canonicalize().unwrap().join(name)
    }

    /// Runs a shell in a sandbox over `base`, as this user or as root.
    fn run(&self, user: Option<u32>, options: &[&str], line: &str) -> Output {
        // Root without capabilities is an owner like others.
        for path in [self.upper(""), self.upper("sub"), self.upper("file"), self.path("open")] {
            chown(path, Some(user.unwrap_or(0)), None).unwrap();
        }
        let (base, session) = (self.path("base"), self.place.path("s.db"));
        let pid = std::process::id();
        let address = "127.0.0.1:1".parse().unwrap();
        write_note(&self.place, &base, &session, address, 0, Some(pid));
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let words = [
            "namespace-child".to_owned(),
            path("dir", &base),
            path("enter", &base),
            path("session", &session),
            path("stand-in", &self.upper("")),
            format!("--address={address}"),
            format!("--runner={pid}"),
            "--covers-base".to_owned(),
            "--sandbox".to_owned(),
        ];
        let words = words.iter().map(String::as_str).chain(options.iter().copied());
        let words: Vec<&str> = words.chain(["--", "bash", "-c", line]).collect();
        let mut command = self.place.command(&words);
        if let Some(user) = user {
            let user = user.to_string();
            command.envs([("SUDO_UID", &user), ("SUDO_GID", &user)]).env("SUDO_USER", "nobody");
        }
        command.env("OUT", self.path("out")).env("BASE", &base).env("OPEN", self.path("open"));
        command.env("SECRET", self.path("secret")).env("TESTS", pid.to_string());
        command.output().unwrap()
    }

    /// All that must not change, with owners, modes and times.
    fn manifest(&self) -> String {
        let mut text = String::new();
        let mut left = ["base", "out", "secret"].map(|name| self.path(name)).to_vec();
        left.push(self.place.path(""));
        while let Some(path) = left.pop() {
            // The notes come and go.
            if path == self.place.path("run") {
                continue;
            }
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let content = String::from_utf8_lossy(&content[..content.len().min(80)]).into_owned();
            text += &format!(
                "{} {:o} {}:{} {} {}.{} {} {content:?}\n",
                path.display(),
                found.mode(),
                found.uid(),
                found.gid(),
                found.nlink(),
                found.mtime(),
                found.mtime_nsec(),
                found.len(),
            );
            if found.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        text
    }
}

fn said(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// What is tried; each line by itself, whatever becomes of the others.
const ESCAPES: &str = r#"
bad() { echo bad >"$1"; echo bad >>"$1"; }
# by paths and links, by what is not content
bad $OUT/file; bad $OUT/new; bad $OUT/to-base/file; mkdir $OUT/dir
rm -rf $OUT/*; mv $OUT/file $BASE/; chmod 777 $OUT/file; chown 0 $OUT/file
touch -d @1 $OUT/file; setfattr -n user.a -v b $OUT/file
ln $OUT/file hard && bad hard; ln $OUT/file $OUT/hard; truncate -s 0 $OUT/file
ln -s $OUT link; bad link/file; bad ../out/file; bad $BASE/../out/file; mkfifo $OUT/fifo
python3 -c 'import os; os.truncate(os.environ["OUT"] + "/file", 0)'
# by processes
for process in /proc/[0-9]* /proc/$TESTS /proc/$PPID; do
    bad $process/root$OUT/file; bad $process/root$BASE/file; bad $process/cwd/file
    for fd in $process/fd/*; do bad $fd/file; done
    nsenter -t ${process#/proc/} -m -- sh -c "echo bad >$OUT/file"
done
kill -9 $TESTS; nsenter -t 1 -m -p -- sh -c "echo bad >$OUT/file"
# by mounts
umount $BASE; umount -l $BASE; umount /tmp; umount -l /
mount -o remount,rw /; mount -o remount,bind,rw /
mkdir -p m; mount --bind / m && bad m$OUT/file; mount -t tmpfs none m; mount --move / m
pivot_root . m; mount -t proc proc m && bad m/1/root$OUT/file
# by namespaces
unshare -Urm sh -c "mount -o remount,bind,rw /; echo bad >$OUT/file; umount -l $BASE
    echo bad >$BASE/file"
unshare -Urm sh -c "mount --bind / m; echo bad >m$OUT/file; mount --rbind / m; umount -l m$BASE"
unshare -UrmpfC --mount-proc sh -c "echo bad >/proc/1/root$OUT/file"
unshare -m sh -c "umount -l $BASE; echo bad >$BASE/file"
unshare -Ur chroot / sh -c "echo bad >$OUT/file"; chroot / sh -c "echo bad >$OUT/file"
unshare -Urm sh -c "mount -t overlay o -olowerdir=/,upperdir=$OUT,workdir=m m; echo bad >m/x"
# by setuid programs
$OUT/suid -p -c "echo bad >$OUT/file; echo bad >$SECRET/key"
su -c "echo bad >$OUT/file"; sudo -n touch $OUT/new
cp $OUT/suid own; chmod 4755 own; ./own -p -c "echo bad >$SECRET/key"
setpriv --reuid 0 sh -c "echo bad >$SECRET/key"; python3 -c 'import os; os.setuid(0)'
# by devices and what steers the system
for device in $(ls /sys/class/block); do
    mknod d b $(tr : ' ' </sys/class/block/$device/dev) && bad d
    rm -f d; bad /dev/$device
done
bad /proc/sys/kernel/core_pattern; bad /proc/sysrq-trigger; bad /sys/kernel/uevent_helper
bad /dev/mem; bad /proc/kcore
bad /dev/shm/acetate-test; bad /tmp/acetate-sandbox-test; bad /var/tmp/acetate-sandbox-test
echo reached >reached
exit 0
"#;

#[test]
fn a_sandboxed_command_changes_nothing_outside() {
    let Some(outside) = Outside::new() else { return };
    let before = outside.manifest();
    let core = fs::read("/proc/sys/kernel/core_pattern").unwrap();
    for user in [Some(USER), None] {
        let output = outside.run(user, &[], ESCAPES);
        assert_eq!(output.status.code(), Some(0), "{user:?}: {}", said(&output));
        assert_eq!(outside.manifest(), before, "{user:?}: {}", said(&output));
        assert_eq!(fs::read("/proc/sys/kernel/core_pattern").unwrap(), core);
        for path in
            ["/dev/shm/acetate-test", "/tmp/acetate-sandbox-test", "/var/tmp/acetate-sandbox-test"]
        {
            assert!(!Path::new(path).exists(), "{user:?}: {path}");
        }
        let reached = fs::read_to_string(outside.upper("reached"));
        assert_eq!(reached.unwrap(), "reached\n", "{}", said(&output));
        fs::remove_file(outside.upper("reached")).unwrap();
        assert_eq!(fs::read_dir(outside.place.path("run")).unwrap().count(), 0, "a note is left");
    }
}

#[test]
fn what_is_allowed_can_be_written_and_what_is_denied_shows_empty() {
    let Some(outside) = Outside::new() else { return };
    let path = |name: &str| outside.path(name).display().to_string();
    let allow = format!("--allow-write={}", path("open"));
    let deny = format!("--deny-read={}", path("secret"));
    let all = format!("--deny-read={}", outside.dir.path().canonicalize().unwrap().display());
    let line =
        "echo kept >$OPEN/kept; ls -A $SECRET; cat $BASE/file; echo in >in; pwd; cat $OUT/file";
    for user in [Some(USER), None] {
        let output = outside.run(user, &[&allow, &deny], line);
        let expected = format!("upper\n{}\nout/file\n", path("base"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", said(&output));
        assert_eq!(fs::read_to_string(path("open/kept")).unwrap(), "kept\n");
        assert_eq!(fs::read_to_string(outside.upper("in")).unwrap(), "in\n");
        fs::remove_file(path("open/kept")).unwrap();

        // All around the base, but for what is allowed.
        let output = outside.run(user, &[&allow, &all], line);
        let expected = format!("upper\n{}\n", path("base"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", said(&output));
        assert_eq!(fs::read_to_string(path("open/kept")).unwrap(), "kept\n");
        fs::remove_file(path("open/kept")).unwrap();
    }
    let within = format!("--deny-read={}", path("base/sub"));
    let output = outside.run(None, &[&within], "ls -A $BASE/sub; echo bad >$BASE/sub/x; echo end");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n", "{}", said(&output));
    assert!(!outside.upper("sub/x").exists());
}

#[test]
fn a_sandbox_has_processes_devices_and_if_asked_a_network_of_its_own() {
    let Some(outside) = Outside::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected");
    let looks = "ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm; ls /dev | tr '\\n' ' '
        echo x >/dev/null && head -c 2 /dev/zero | wc -c
        grep CapEff /proc/self/status; echo $TMPDIR";
    let output = outside.run(None, &[], &format!("{looks}; {connect}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].parse::<u32>().unwrap() < 8, "{said}");
    assert_eq!(lines[1], "acetate", "{said}");
    assert!(lines[2].contains("null") && !lines[2].contains("vda"), "{said}");
    assert!(lines[2].ends_with("2") || lines.contains(&"2"), "{said}");
    assert!(said.contains("0000000000000000") && said.contains("/tmp\n"), "{said}");
    assert!(said.ends_with("connected\n"), "{said}");
    let own = "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0))
socket.create_connection(s.getsockname())' && echo loopback";
    let output = outside.run(None, &["--no-network"], &format!("{connect}; {own}"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "loopback\n");
}

#[test]
fn a_server_outside_cannot_be_asked_by_its_socket() {
    let Some(outside) = Outside::new() else { return };
    let socket = outside.path("out/socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let line = "python3 -c 'import os, socket
socket.socket(socket.AF_UNIX).connect(os.environ[\"OUT\"] + \"/socket\")' && echo connected
        exit 0";
    let output = outside.run(None, &[], line);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{}", said(&output));
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
}

#[test]
fn what_a_sandboxed_command_leaves_ends_with_it() {
    let Some(outside) = Outside::new() else { return };
    let output = outside.run(None, &[], "setsid sleep 4711 >/dev/null 2>&1 & sleep 0.2; exit 5");
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let left = Command::new("pgrep").args(["-f", "sleep 4711"]).output().unwrap();
    assert!(left.stdout.is_empty(), "it goes on: {}", said(&left));
}

/// A `mount` that shows the directory `upper` in place of what the server has, and lets its caller
/// read a table of mounts that says otherwise.
const FEIGN: &str = r#"
home=${0%/*}/.. table=$(mktemp "${0%/*}/../table.XXXXXX") port=${4#*,port=}
{
    cat "/proc/$PPID/mountinfo"
    for dir in "$6" "$(realpath "$home")/base"; do
        echo "999 1 0:99 / $dir rw - nfs $5 rw,port=${port%%,*},addr=127.0.0.1"
    done
} >"$table"
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --bind "$home/b" "$6"
exec mount --bind "$table" "/proc/$PPID/mountinfo"
"#;

#[test]
fn run_confines_its_command_and_shows_it_the_session() {
    if Outside::new().is_none() {
        return;
    }
    let place = Place::new(FEIGN).unwrap();
    fs::write(place.path("base/file"), "base\n").unwrap();
    fs::write(place.path("b/file"), "session\n").unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_acetate")).parent().unwrap();
    let base = place.path("base");
    // Base and session are in `/tmp`, of which the command has another one.
    let line = format!(
        "pwd; cat file; echo new >file; ls {}; echo kept | {} write $ACETATE_SESSION /written
        {1} kv set $ACETATE_SESSION key 1; echo $?; exit 6",
        place.path("").display(),
        env!("CARGO_BIN_EXE_acetate"),
    );
    let args = ["run", "s.db", "--base", "base", "--sandbox", "--allow-write"];
    let args = [&args[..], &[programs.to_str().unwrap(), "--", "sh", "-c", &line]].concat();
    let output = place.command(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    // What is not asked of the server would write to the file itself.
    let expected = format!("{}\nsession\nbase\ntmp\n2\n", base.display());
    assert_eq!(printed, expected, "{}", said(&output));
    assert_eq!(fs::read_to_string(place.path("b/file")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(place.path("base/file")).unwrap(), "base\n");
    assert!(said(&output).contains("A /written\nthis run: 1 added"), "{}", said(&output));
    assert!(said(&output).contains("the session is read-only"), "{}", said(&output));
    place.assert_nothing_is_left();
}
