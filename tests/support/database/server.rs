//! The database of the tests: the one that is named, or a private one of this process.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::thread;

use acetate::delta::postgres::{SessionUrl, connect, prepare_schema};
use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::{Client, SimpleQueryMessage};

/// Names the database: `postgres://USER@HOST:PORT/DATABASE`.
const VARIABLE: &str = "ACETATE_TEST_DATABASE";

/// A database with a schema of this process.
pub struct TestDatabase {
    server: String,
    schema: String,
    runtime: Runtime,
    client: Mutex<Client>,
    sessions: AtomicU64,
}

/// The database that the environment names, if any.
pub fn given() -> Option<&'static TestDatabase> {
    static GIVEN: LazyLock<Option<TestDatabase>> =
        LazyLock::new(|| std::env::var(VARIABLE).ok().map(|it| apart(|| TestDatabase::open(it))));
    GIVEN.as_ref()
}

/// The database that the environment names, or a private one that ends with this process.
pub fn any() -> &'static TestDatabase {
    static PRIVATE: OnceLock<TestDatabase> = OnceLock::new();
    given().unwrap_or_else(|| PRIVATE.get_or_init(|| apart(|| TestDatabase::open(start_private()))))
}

/// Runs `work` on a thread of its own: the caller may be a thread of a runtime, which must not
/// wait for another one.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The schema of URLs that name none.
const DEFAULT_SCHEMA: &str = "acetate";

impl TestDatabase {
    fn open(server: String) -> Self {
        Self::with_schema(server, format!("t_{}", std::process::id()))
    }

    /// A new database in the same server, with the schema that URLs have if they name none.
    pub fn apart(&self, name: &str) -> Self {
        self.drop_database(name);
        self.run(&format!("CREATE DATABASE {name}"));
        let (server, _) = self.server.rsplit_once('/').unwrap();
        let server = format!("{server}/{name}");
        apart(|| Self::with_schema(server, DEFAULT_SCHEMA.to_owned()))
    }

    fn with_schema(server: String, schema: String) -> Self {
        let database = Self::connected(server, schema);
        let schema = &database.url("none").schema;
        let client = database.client.lock().unwrap();
        database.runtime.block_on(async {
            let drop_old = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
            client.batch_execute(&drop_old).await.unwrap();
            prepare_schema(&client, schema).await.unwrap();
        });
        drop(client);
        database
    }

    fn connected(server: String, schema: String) -> Self {
        let runtime = Runtime::new().unwrap();
        let url: SessionUrl = format!("{server}/none?schema={schema}").parse().unwrap();
        let client = runtime.block_on(connect(&url.connection, runtime.handle())).unwrap();
        let (client, sessions) = (Mutex::new(client), AtomicU64::new(0));
        Self { server, schema, runtime, client, sessions }
    }

    /// The same database as another role, which needs no password.
    pub fn login(&self, role: &str, schema: &str) -> Self {
        let server = format!("postgres://{role}@{}", self.server.split_once('@').unwrap().1);
        apart(|| Self::connected(server, schema.to_owned()))
    }

    /// Removes a database that [`TestDatabase::apart`] made.
    pub fn drop_database(&self, name: &str) {
        self.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    }

    /// A name that no session of this process has.
    pub fn new_url(&self) -> SessionUrl {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        self.url(&format!("s{number}"))
    }

    /// The URL of the session of this name.
    pub fn url(&self, name: &str) -> SessionUrl {
        format!("{}/{name}?schema={}", self.server, self.schema).parse().unwrap()
    }

    /// The address of the server.
    pub fn address(&self) -> String {
        let (_, rest) = self.server.split_once("://").unwrap();
        let (place, _) = rest.split_once('/').unwrap();
        place.rsplit('@').next().unwrap().to_owned()
    }

    /// The URL of no session, at another port of this machine.
    pub fn through(&self, port: u16) -> SessionUrl {
        let server = self.server.replace(&self.address(), &format!("127.0.0.1:{port}"));
        format!("{server}/none?schema={}", self.schema).parse().unwrap()
    }

    /// The runtime of the connections.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Runs `work` with a connection, on a thread that may block.
    pub fn with<T: Send>(&self, work: impl FnOnce(&mut Client, &Handle) -> T + Send) -> T {
        apart(|| {
            // A test that failed with the connection has ended its statement.
            let mut client = self.client.lock().unwrap_or_else(|failed| failed.into_inner());
            work(&mut client, self.runtime.handle())
        })
    }

    /// Runs statements.
    pub fn run(&self, sql: &str) {
        self.with(|client, runtime| runtime.block_on(client.batch_execute(sql)).unwrap());
    }

    /// The rows of a query, as text.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_rows(sql).unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// The same, or the database's error.
    pub fn try_rows(&self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        let told = self.with(|client, runtime| runtime.block_on(client.simple_query(sql)));
        let told = told.map_err(|error| match error.as_db_error() {
            Some(error) => error.message().to_owned(),
            None => error.to_string(),
        })?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned());
                Some(values.collect())
            }
            _ => None,
        };
        Ok(told.iter().filter_map(row).collect())
    }

    /// The server and the database, as a URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The schema of this process.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

/// Starts a cluster of this process; returns its URL. A shell stops it when this process ends,
/// however it ends.
fn start_private() -> String {
    static GUARD: OnceLock<(Child, TempDir)> = OnceLock::new();
    let dir = tempfile::Builder::new().prefix("acetate-cluster").tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("integration/lib/postgres");
    let mut told = String::new();
    for _ in 0..3 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut start = Command::new(&script);
        start.arg("start").arg(dir.path()).env("PORT", port.to_string());
        let started = start.stdin(Stdio::null()).output().unwrap();
        if started.status.success() {
            let guard = guard(&script, dir.path());
            assert!(GUARD.set((guard, dir)).is_ok(), "one cluster");
            return String::from_utf8(started.stdout).unwrap().trim().to_owned();
        }
        told = String::from_utf8_lossy(&started.stderr).into_owned();
        if told.contains("no PostgreSQL is installed") {
            break;
        }
    }
    panic!("no database for the tests (set {VARIABLE}, or install PostgreSQL): {told}");
}

fn guard(script: &Path, dir: &Path) -> Child {
    use std::os::unix::process::CommandExt;
    let wait_and_stop = "cat > /dev/null; place=$(cat \"$1/place\"); \"$0\" stop \"$1\"
        rm -rf \"$place\" \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", wait_and_stop]).arg(script).arg(dir).process_group(0);
    // The pipe ends with this process.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
