//! Connections to the database.

use std::error::Error as _;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::passwords;

/// Time for one attempt to connect to one host, if the URL does not say; twice that for all that
/// comes before the first statement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After so long without an answer of the other machine's kernel, a connection is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// What each connection begins with. A commit that was answered is on disk.
const SETTINGS: &str = "SET synchronous_commit = on";

/// Only PostgreSQL has this one, which keeps it from planning a batch each time.
const PLAN_ONCE: &str = "SET plan_cache_mode = force_generic_plan";

/// The oldest version of PostgreSQL that this program is tested with.
const MIN_VERSION: u32 = 13;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseConnectError {
    /// The database does not answer, or refuses.
    #[error("{}", words(.0))]
    Database(tokio_postgres::Error),
    /// The password is missing or wrong.
    #[error("the database does not accept the password")]
    Password,
    /// It takes connections, and is silent.
    #[error("the database takes connections and does not answer")]
    Silent,
    /// The database is too old.
    #[error("the database is of version {0}; {MIN_VERSION} is the oldest that works")]
    Old(String),
    /// The certificates of this machine cannot be used.
    #[error("the connection cannot be encrypted: {0}")]
    Tls(String),
    /// The file with passwords cannot be read.
    #[error("the passwords cannot be read: {0}")]
    Passwords(std::io::Error),
}

impl From<tokio_postgres::Error> for DatabaseConnectError {
    fn from(error: tokio_postgres::Error) -> Self {
        let is_password = error.code() == Some(&SqlState::INVALID_PASSWORD)
            // The driver's own words, if there is none to send.
            || error.source().is_some_and(|cause| cause.to_string() == "password missing");
        if is_password { Self::Password } else { Self::Database(error) }
    }
}

/// An error with its cause: the driver's text alone says only where it happened.
pub fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(database), _) => database.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// Connects to the first host that takes changes. A task of `runtime` serves the connection until
/// the client is dropped.
///
/// # Errors
/// No host can be reached, all refuse, or none takes changes.
pub async fn connect(config: &Config, runtime: &Handle) -> Result<Client, DatabaseConnectError> {
    let mut config = config.clone();
    let limit = *config.get_connect_timeout().unwrap_or(&CONNECT_TIMEOUT);
    let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(1).max(1);
    config.connect_timeout(limit);
    let connecting = connect_with(config, runtime);
    let connected = tokio::time::timeout(limit * 2 * hosts, connecting).await;
    connected.unwrap_or(Err(DatabaseConnectError::Silent))
}

async fn connect_with(
    mut config: Config,
    runtime: &Handle,
) -> Result<Client, DatabaseConnectError> {
    config.keepalives_idle(SILENCE).tcp_user_timeout(SILENCE);
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_application_name().is_none() {
        config.application_name("acetate");
    }
    if config.get_password().is_none()
        && let Some(password) = passwords::find(&config).map_err(DatabaseConnectError::Passwords)?
    {
        config.password(password);
    }
    let is_near = config.get_hosts().iter().all(is_near);
    let client = if is_near && config.get_ssl_mode() == SslMode::Prefer {
        serve(config.ssl_mode(SslMode::Disable).connect(NoTls).await?, runtime)?
    } else if config.get_ssl_mode() == SslMode::Disable {
        serve(config.connect(NoTls).await?, runtime)?
    } else {
        serve(config.ssl_mode(SslMode::Require).connect(tls()?).await?, runtime)?
    };
    // In one round trip.
    let settings = client.batch_execute(SETTINGS);
    // Another engine refuses it, and needs no such word.
    let (set, _) = tokio::join!(settings, client.batch_execute(PLAN_ONCE));
    set?;
    Ok(client)
}

/// Has a task serve a connection to a database that is new enough.
fn serve<S, T>(
    (client, connection): (Client, Connection<S, T>),
    runtime: &Handle,
) -> Result<Client, DatabaseConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let version = connection.parameter("server_version").unwrap_or_default().to_owned();
    let major = version.split(|c: char| !c.is_ascii_digit()).next();
    if let Some(0..MIN_VERSION) = major.and_then(|it| it.parse().ok()) {
        return Err(DatabaseConnectError::Old(version));
    }
    runtime.spawn(log_end(connection));
    Ok(client)
}

async fn log_end(connection: impl Future<Output = Result<(), tokio_postgres::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(error = words(&error), "a connection to the database ended");
    }
}

/// Whether a host is this machine: nothing in between can read along.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Host::Unix(_) => true,
    }
}

/// TLS that checks the server's name and certificate by this machine's certificates.
fn tls() -> Result<MakeRustlsConnect, DatabaseConnectError> {
    let failed = |error: &dyn std::fmt::Display| DatabaseConnectError::Tls(error.to_string());
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(DatabaseConnectError::Tls("this machine has no certificates".to_owned()));
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
