//! Roles of a database: the statements of docs/POSTGRES.md let each do what the page says, and no
//! more.

use std::process::{Command, Output};

use acetate::delta::postgres::check_rights;
use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, said};
use crate::support::database::server::{TestDatabase, any};
use crate::support::sql_blocks::{section, sql_blocks};

const PAGE: &str = include_str!("../../docs/POSTGRES.md");

/// All roles of the tests; they are the whole server's.
const ROLES: [&str; 5] = ["tenant_a", "tenant_b", "analyst_a", "server_a", "server_b"];

/// A database with the roles of two tenants.
struct Tenants {
    name: String,
    /// As the superuser.
    admin: TestDatabase,
    dir: TempDir,
}

impl Tenants {
    /// Runs the statements of the page, for both tenants; the first sessions are made in between.
    fn new() -> Self {
        let name = format!("roles_{}", std::process::id());
        let admin = any().apart(&name);
        ROLES.iter().for_each(|role| admin.run(&format!("DROP ROLE IF EXISTS {role}")));
        let tenants = Self { name, admin, dir: tempdir().unwrap() };
        let is_first = |sql: &str| sql.contains("CREATE SCHEMA");
        let blocks = sql_blocks(section(PAGE, "## Roles"));
        assert_eq!(blocks.iter().filter(|(_, sql)| is_first(sql)).count(), 1);
        for (said, sql) in &blocks {
            match said.split(',').next().unwrap().trim_end_matches(':') {
                "As an administrator" => tenants.admin.run(sql),
                "As the tenant's role" => tenants.admin.login("tenant_a", "tenant_a").run(sql),
                other => panic!("who runs this? {other}"),
            }
            if is_first(sql) {
                tenants.admin.run(&sql.replace("_a", "_b"));
                for tenant in ["a", "b"] {
                    let role = format!("tenant_{tenant}");
                    let told = tenants.run("init", &tenants.url(&role, &role, "chat-abc"), &[]);
                    said_by(&told, 0);
                }
            }
        }
        tenants
    }

    fn url(&self, role: &str, schema: &str, name: &str) -> String {
        let (_, place) = self.admin.server().split_once('@').unwrap();
        format!("postgres://{role}@{place}/{name}?schema={schema}")
    }

    fn command(&self, command: &str, url: &str) -> Command {
        let mut program = acetate(self.dir.path(), &[command, url]);
        program.env("XDG_CACHE_HOME", self.dir.path());
        program
    }

    fn run(&self, command: &str, url: &str, args: &[&str]) -> Output {
        self.command(command, url).args(args).output().unwrap()
    }

    /// Serves until the server listens, and stops it.
    #[track_caller]
    fn serve(&self, url: &str) {
        let args = ["--local", "local", "--insecure"];
        let server = Serving::start_as(self.command("serve", url), 1, &args);
        said_by(&self.run("mkdir", url, &[&format!("/served{}", server.addresses[0].port())]), 0);
        server.signal("TERM");
        assert!(server.end().0.success());
    }

    /// A role runs into what it may not, and is told so with the place to look.
    #[track_caller]
    fn assert_denied(&self, output: &Output) {
        let (_, error) = said(output, 2);
        assert!(error.contains("permission denied for"), "{error}");
        assert!(error.contains("hint: the role needs USAGE") && error.contains("Roles"), "{error}");
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        any().drop_database(&self.name);
        ROLES.iter().for_each(|role| any().run(&format!("DROP ROLE IF EXISTS {role}")));
    }
}

#[track_caller]
fn said_by(output: &Output, code: i32) -> String {
    said(output, code).0
}

/// One test: roles are the whole server's.
#[test]
fn each_role_may_do_what_the_page_says_and_no_more() {
    let tenants = Tenants::new();
    owners_serve_and_do_not_see_each_other(&tenants);
    analysts_read_all_but_secrets(&tenants);
    servers_serve_and_change_no_tables(&tenants);
    without_a_right_the_reason_is_told(&tenants);
}

fn owners_serve_and_do_not_see_each_other(tenants: &Tenants) {
    let is_super = tenants.admin.rows("SELECT rolname FROM pg_roles WHERE rolsuper").concat();
    assert!(!is_super.iter().any(|role| ROLES.contains(&role.as_str())), "{is_super:?}");
    tenants.serve(&tenants.url("tenant_a", "tenant_a", "chat-abc"));
    tenants.serve(&tenants.url("tenant_b", "tenant_b", "chat-new"));
    let other = tenants.admin.login("tenant_b", "tenant_b");
    for table in ["session", "secret", "fs_data", "files", "changes"] {
        let refused = other.try_rows(&format!("SELECT count(*) FROM tenant_a.{table}"));
        assert_eq!(refused.unwrap_err(), "permission denied for schema tenant_a");
        other.rows(&format!("SELECT count(*) FROM tenant_b.{table}"));
    }
    let theirs = tenants.url("tenant_b", "tenant_a", "chat-abc");
    for command in ["serve", "init", "diff", "check"] {
        tenants.assert_denied(&tenants.run(command, &theirs, &[]));
    }
    tenants.assert_denied(&tenants.run("mkdir", &theirs, &["/x"]));
    let place = theirs.replace("/chat-abc", "");
    tenants.assert_denied(&tenants.run("sessions", &place, &[]));
}

fn analysts_read_all_but_secrets(tenants: &Tenants) {
    let analyst = tenants.admin.login("analyst_a", "tenant_a");
    for (said, query) in sql_blocks(section(PAGE, "## SQL")) {
        let query = query.replace("search_path = acetate", "search_path = tenant_a");
        analyst.try_rows(&query).unwrap_or_else(|error| panic!("{said} {error}"));
    }
    let changes = "SELECT DISTINCT procedure FROM changes WHERE session = 'chat-abc'";
    assert_eq!(analyst.rows(changes), [["MKDIR"]]);
    let refused = analyst.try_rows("SELECT handle_key FROM tenant_a.secret").unwrap_err();
    assert_eq!(refused, "permission denied for table secret");
    for change in ["DELETE FROM session", "UPDATE fs_inode SET size = 0", "DROP VIEW files"] {
        analyst.try_rows(change).unwrap_err();
    }
    let url = tenants.url("analyst_a", "tenant_a", "chat-abc");
    for command in ["serve", "diff"] {
        tenants.assert_denied(&tenants.run(command, &url, &[]));
    }
    let place = url.replace("/chat-abc", "");
    assert!(said_by(&tenants.run("sessions", &place, &[]), 0).contains("chat-abc"));
}

fn servers_serve_and_change_no_tables(tenants: &Tenants) {
    tenants.serve(&tenants.url("server_a", "tenant_a", "chat-abc"));
    tenants.serve(&tenants.url("server_a", "tenant_a", "chat-more"));
    let server = tenants.admin.login("server_a", "tenant_a");
    for change in ["DROP TABLE tenant_a.secret", "ALTER TABLE tenant_a.session ADD x BIGINT"] {
        let refused = server.try_rows(change).unwrap_err();
        assert!(refused.contains("must be owner"), "{refused}");
    }
    // A schema of an older version is served, and completed by its owner.
    tenants.admin.run("DROP VIEW tenant_a.files; UPDATE tenant_a.layout SET revision = 0");
    let url = tenants.url("server_a", "tenant_a", "chat-abc");
    let args = ["--local", "local", "--insecure"];
    let serving = Serving::start_as(tenants.command("serve", &url), 1, &args);
    let said = serving.said.join("\n");
    assert!(said.contains("the schema is of an older acetate"), "{said}");
    drop(serving);
    tenants.serve(&tenants.url("tenant_a", "tenant_a", "chat-more"));
    tenants.admin.rows("SELECT count(*) FROM tenant_a.files");
}

fn without_a_right_the_reason_is_told(tenants: &Tenants) {
    let url = tenants.url("server_a", "tenant_a", "chat-more");
    let server = tenants.admin.login("server_a", "tenant_a");
    let schema = &server.url("none").schema;
    for (right, table) in [("DELETE", "fs_dentry"), ("INSERT", "acetate_op"), ("SELECT", "secret")]
    {
        tenants.admin.run(&format!("REVOKE {right} ON tenant_a.{table} FROM server_a"));
        let output = tenants.run("serve", &url, &["--listen", "127.0.0.1:0"]);
        tenants.assert_denied(&output);
        let (_, error) = said(&output, 2);
        assert!(error.contains(table), "{error}");
        // Also of a server that has the rows, or waits for its turn.
        let checked = server.with(|client, runtime| runtime.block_on(check_rights(client, schema)));
        assert!(checked.unwrap_err().is_denied(), "{right} {table}");
        tenants.admin.run(&format!("GRANT {right} ON tenant_a.{table} TO server_a"));
    }
    tenants.admin.run("REVOKE USAGE ON SCHEMA tenant_a FROM server_a");
    tenants.assert_denied(&tenants.run("serve", &url, &[]));
}
