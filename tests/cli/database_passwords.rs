//! Passwords of a database are nowhere but in the environment, or in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

use super::program::{Serving, acetate, said};
use crate::support::database::server::any;
use crate::support::http::get;

const PASSWORD: &str = "Correct-Horse-7391";
const WRONG: &str = "Battery-Staple-2846";

/// A role that needs a password, and owns a schema of its own name.
struct Role(String);

impl Role {
    fn new() -> Self {
        let name = format!("locked_{}", std::process::id());
        let role = Self(name.clone());
        role.remove();
        // The group of the roles that have to say one (integration/lib/postgres).
        if any().rows("SELECT 1 FROM pg_roles WHERE rolname = 'with_password'").is_empty() {
            any().run("CREATE ROLE with_password");
        }
        any().run(&format!(
            "CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE with_password;
             CREATE SCHEMA {name} AUTHORIZATION {name}"
        ));
        role
    }

    fn remove(&self) {
        let Self(name) = self;
        any().run(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; DROP ROLE IF EXISTS {name}"));
    }

    /// A session in the role's schema.
    fn url(&self, name: &str) -> String {
        let Self(role) = self;
        let (_, place) = any().server().split_once('@').unwrap();
        format!("postgres://{role}@{place}/{name}?schema={role}")
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Fails if a password is in a text.
#[track_caller]
fn assert_none_in(text: &[u8], what: &str) {
    for password in [PASSWORD, WRONG] {
        let mut found = text.windows(password.len());
        let shown = String::from_utf8_lossy(text);
        assert!(!found.any(|part| part == password.as_bytes()), "{what}: {shown}");
    }
}

/// Fails if a password is in a file below a directory, except in `except`.
fn assert_none_below(dir: &Path, except: &str) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.metadata() {
            Ok(about) if about.is_dir() => assert_none_below(&entry, except),
            Ok(about) if about.is_file() && !entry.ends_with(except) => {
                assert_none_in(&fs::read(&entry).unwrap(), &entry.display().to_string());
            }
            _ => {}
        }
    }
}

#[test]
fn a_password_of_the_environment_is_nowhere_else() {
    let (role, dir) = (Role::new(), tempdir().unwrap());
    let url = role.url("chat-abc");
    let command = |args: &[&str], password: Option<&str>| {
        // What a server logs has to fit into a pipe until it ends.
        let level = if args[0] == "serve" { "debug" } else { "trace" };
        let mut command = acetate(dir.path(), &["--log", level]);
        command.args(args).env("XDG_CACHE_HOME", dir.path());
        command.env("HOME", dir.path()).env_remove("PGPASSFILE").env_remove("PGPASSWORD");
        password.map(|password| command.env("PGPASSWORD", password));
        command
    };
    let run = |mut command: Command, code: i32| {
        let output: Output = command.output().unwrap();
        assert_none_in(&output.stdout, "stdout");
        assert_none_in(&output.stderr, "stderr");
        said(&output, code)
    };
    run(command(&["init", &url], Some(PASSWORD)), 0);
    // Of each reason not to connect.
    for (given, told) in [(Some(WRONG), "the password"), (None, "the password")] {
        let (_, error) = run(command(&["serve", &url], given), 2);
        let hint = "hint: put the password in PGPASSWORD";
        assert!(error.contains(told) && error.contains(hint), "{error}");
    }
    let away = url.replace(&any().address(), "127.0.0.1:1");
    run(command(&["diff", &away], Some(PASSWORD)), 2);
    // In a URL, it is refused, and not shown.
    for bad in [
        url.replacen('@', &format!(":{PASSWORD}@"), 1),
        format!("{url}&password={PASSWORD}"),
        format!("postgres://me:{PASSWORD}@h"),
    ] {
        for name in ["serve", "init", "diff", "sessions", "status"] {
            let (_, error) = run(command(&[name, &bad], None), 2);
            assert!(error.contains("***"), "{error}");
        }
        for args in [["push", "s.db", &bad], ["kv", "ls", &bad], ["tool", "ls", &bad]] {
            run(command(&args, None), 2);
        }
    }
    let server = command(&["serve", &url], Some(PASSWORD));
    let args = ["--local", "local", "--admin", "127.0.0.1:0", "--insecure"];
    let server = Serving::start_as(server, 1, &args);
    let lines = server.said.join("\n");
    let admin = lines.split("figures at http://").nth(1).unwrap().split('/').next().unwrap();
    for page in ["/metrics", "/readyz", "/healthz"] {
        assert_none_in(get(admin.parse().unwrap(), page).body.as_bytes(), page);
    }
    #[cfg(target_os = "linux")]
    assert_none_in(&server.command_line(), "the command line");
    run(command(&["mkdir", &url, "/d"], Some(PASSWORD)), 0);
    for args in [&["status", &url][..], &["status", &url, "--json"], &["log", &url]] {
        run(command(args, Some(PASSWORD)), 0);
    }
    let place = url.replace("/chat-abc", "");
    let (listed, _) = run(command(&["sessions", &place, "--json"], Some(PASSWORD)), 0);
    assert!(listed.contains("chat-abc"), "{listed}");
    run(command(&["sessions"], None), 0);
    server.signal("TERM");
    let (ended, said) = server.end();
    assert!(ended.success(), "{said:?}");
    assert_none_in(said.join("\n").as_bytes(), "the server's log");
    // A file has it for those who may read the file alone.
    let port = any().address().rsplit(':').next().unwrap().to_owned();
    let file = dir.path().join(".pgpass");
    fs::write(&file, format!("127.0.0.1:{port}:*:{}:{PASSWORD}\n", role.0)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, error) = run(command(&["diff", &url], None), 2);
    assert!(error.contains("others may read it"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    run(command(&["diff", &url], None), 1);
    assert_none_below(dir.path(), ".pgpass");
}
