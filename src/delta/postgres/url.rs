//! Names of databases and of sessions in them:
//! `postgres://USER@HOST[,HOST2]/DATABASE/NAME?schema=S`.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use siphasher::sip::SipHasher13;
use tokio_postgres::config::Host;

/// The schema if none is named.
const DEFAULT_SCHEMA: &str = "acetate";

/// Longest name of a schema, in bytes: PostgreSQL cuts longer ones.
const MAX_SCHEMA_BYTES: usize = 63;

/// The port of PostgreSQL.
const DEFAULT_PORT: u16 = 5432;

/// Longest name of a session, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// A schema: a lower-case letter or `_`, and then also digits, so that it needs no quotes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaName(String);

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SchemaName {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
        let is_next = |c: char| is_first(c) || c.is_ascii_digit();
        let is_name = text.starts_with(is_first) && text.chars().all(is_next);
        match is_name && text.len() <= MAX_SCHEMA_BYTES && !text.starts_with("pg_") {
            true => Ok(Self(text.to_owned())),
            false => Err(UrlError::Schema(text.to_owned())),
        }
    }
}

/// Why a text is not the name of a session in a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It has another beginning.
    #[error("it does not begin with postgres://")]
    Scheme,
    /// It names no session.
    #[error("it names no session: postgres://USER@HOST/DATABASE/NAME")]
    Name,
    /// It names a session, or no database.
    #[error("it names no database: postgres://USER@HOST/DATABASE")]
    Place,
    /// The session's name is too long, or has a character that no name has.
    #[error("{0:?} is no name of a session")]
    BadName(String),
    /// A password in it would be shown by ps.
    #[error("it has a password, which other users of this machine could read")]
    Password,
    /// The schema.
    #[error("{0:?} is no name of a schema: lower-case letters, digits and _")]
    Schema(String),
    /// The rest is not understood.
    #[error("{0}")]
    Connection(String),
}

/// A schema in a database: `postgres://USER@HOST[,HOST2]/DATABASE[?schema=S]`.
#[derive(Debug, Clone)]
pub struct DatabasePlace {
    /// How to connect: hosts, user, database.
    pub connection: tokio_postgres::Config,
    /// The schema of the tables.
    pub schema: SchemaName,
    text: String,
}

/// The name of a session in a database: a [`DatabasePlace`] with the session's name after the
/// database.
#[derive(Debug, Clone)]
pub struct SessionUrl {
    /// How to connect: hosts, user, database.
    pub connection: tokio_postgres::Config,
    /// The schema of the session's tables.
    pub schema: SchemaName,
    /// The session's name in the schema.
    pub name: String,
    text: String,
}

impl fmt::Display for DatabasePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for SessionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for SessionUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SessionUrl {}

impl SessionUrl {
    /// The name's last part, as a file name.
    pub fn file_name(&self) -> &str {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        if matches!(last, "" | "." | "..") { "session" } else { last }
    }

    /// Whether a text is meant as one, right or wrong.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// A text that two names of one session have in common: without the user and the options of
    /// connections, with the hosts in order and with the default port.
    pub fn key(&self) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let Self { schema, name, .. } = self;
        format!("{}:{}", self.place_key(), encoded(&format!("{schema}/{name}")))
    }

    /// A hash of the key.
    pub fn hash(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.key().as_bytes());
        hasher.finish()
    }

    /// The same of its database.
    pub fn place_key(&self) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let ports = self.connection.get_ports();
        let port = |at: usize| match ports {
            [port] => *port,
            ports => ports.get(at).copied().unwrap_or(DEFAULT_PORT),
        };
        let host = |(at, host): (usize, &Host)| match host {
            Host::Tcp(name) => format!("{}:{}", name.to_ascii_lowercase(), port(at)),
            Host::Unix(dir) => format!("{}:{}", dir.display(), port(at)),
        };
        let mut hosts: Vec<_> = self.connection.get_hosts().iter().enumerate().map(host).collect();
        hosts.sort();
        let database = self.connection.get_dbname().unwrap_or_default();
        format!("postgres:{}:{}", encoded(&hosts.join(",")), encoded(database))
    }
}

/// A text that is meant as a URL, to be shown: without the passwords that may be in it.
pub fn without_password(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    // A password may have any character.
    let shown = match rest.rsplit_once('@') {
        Some((user, rest)) if user.contains(':') => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{name}:***@{rest}")
        }
        _ => rest.to_owned(),
    };
    let (place, query) = shown.split_once('?').unwrap_or((&shown, ""));
    let hide = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}=***"),
        _ => pair.to_owned(),
    };
    let pairs: Vec<_> = query.split('&').map(hide).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    format!("{scheme}://{place}{query}")
}

/// The parts of a URL: what is before the database, the database with what follows it, and the
/// parameters.
fn parts(text: &str) -> Result<(&str, &str, &str), UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return Err(UrlError::Scheme);
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (server, path) = place.split_once('/').ok_or(UrlError::Name)?;
    if server.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return Err(UrlError::Password);
    }
    Ok((server, path, query))
}

/// A place with its parameters.
fn place(server: &str, database: &str, query: &str, text: &str) -> Result<DatabasePlace, UrlError> {
    let mut schema = DEFAULT_SCHEMA;
    let mut others = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("schema", value)) => schema = value,
            Some(("password", _)) => return Err(UrlError::Password),
            _ => others.push(pair),
        }
    }
    let connection = format!("postgres://{server}/{database}?{}", others.join("&"));
    let connection = connection.parse().map_err(|error: tokio_postgres::Error| {
        UrlError::Connection(super::connect::words(&error))
    })?;
    Ok(DatabasePlace { connection, schema: schema.parse()?, text: text.to_owned() })
}

impl FromStr for DatabasePlace {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (server, database, query) = parts(text)?;
        let database = database.strip_suffix('/').unwrap_or(database);
        match database.is_empty() || database.contains('/') {
            true => Err(UrlError::Place),
            false => place(server, database, query, text),
        }
    }
}

impl FromStr for SessionUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (server, path, query) = parts(text)?;
        let (database, name) = path.split_once('/').ok_or(UrlError::Name)?;
        let decoded = percent_decode_str(name).decode_utf8();
        let name = decoded.map_err(|_| UrlError::BadName(name.to_owned()))?.into_owned();
        if name.is_empty() || database.is_empty() {
            return Err(UrlError::Name);
        }
        if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(UrlError::BadName(name));
        }
        let DatabasePlace { connection, schema, text } = place(server, database, query, text)?;
        Ok(Self { connection, schema, name, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<SessionUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn a_url_names_hosts_a_database_a_schema_and_a_session() {
        let parsed =
            url("postgres://me@a.example:5433,b.example/agents/chat/u%201/x?schema=t_7").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.schema.to_string()), ("chat/u 1/x", "t_7".into()));
        assert_eq!(parsed.connection.get_hosts().len(), 2);
        assert_eq!(parsed.connection.get_dbname(), Some("agents"));
        assert_eq!(url("postgres:///agents/a").unwrap().schema.to_string(), "acetate");
    }

    #[test]
    fn two_texts_that_name_one_session_have_one_key() {
        let key = |text: &str| url(text).unwrap().key();
        let one = key("postgres://me@A.example,b.example:5433/db/x?sslmode=disable");
        assert_eq!(one, key("postgresql://you@b.example:5433,a.example:5432/db/x?schema=acetate"));
        for other in [
            "postgres://me@a.example/db/x",
            "postgres://me@a.example,b.example:5433/other/x",
            "postgres://me@a.example,b.example:5433/db/y",
            "postgres://me@a.example,b.example:5433/db/x?schema=s",
            "postgres:///db/x?host=/run",
        ] {
            assert_ne!(one, key(other), "{other}");
        }
        assert_ne!(key("postgres://h/db/a//b"), key("postgres://h/db/a/b"));
        assert!(!std::path::Path::new(&one).is_absolute() && !one.contains('/'), "{one}");
    }

    #[test]
    fn what_is_shown_has_no_password() {
        for text in ["postgres://h/db/a", "postgres://me@h/db/a?schema=t&sslmode=disable"] {
            assert_eq!(without_password(text), text);
        }
        for (text, shown) in [
            ("postgres://me:word@h/db/a", "postgres://me:***@h/db/a"),
            ("postgres://me:wo@r/d@h/db/a", "postgres://me:***@h/db/a"),
            ("postgresql://me:word@h", "postgresql://me:***@h"),
            ("postgres://h/db/a?x=1&password=word", "postgres://h/db/a?x=1&password=***"),
            ("postgres://h/db/a?sslpassword=word", "postgres://h/db/a?sslpassword=***"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn what_is_not_a_name_of_a_session_is_refused_with_the_reason() {
        for text in ["postgres://h", "postgres://h/db", "postgres://h/db/", "postgres://h//a"] {
            assert_eq!(url(text).unwrap_err(), UrlError::Name, "{text}");
        }
        assert_eq!(url("mysql://h/db/a").unwrap_err(), UrlError::Scheme);
        assert_eq!(url("postgres://me:word@h/db/a").unwrap_err(), UrlError::Password);
        assert_eq!(url("postgres://h/db/a?password=x").unwrap_err(), UrlError::Password);
        for schema in ["", "A", "a-b", "7", "pg_x", "a\"; DROP TABLE x; --"] {
            let fault = url(&format!("postgres://h/db/a?schema={schema}")).unwrap_err();
            assert_eq!(fault, UrlError::Schema(schema.to_owned()));
        }
        assert!(matches!(url("postgres://h/db/a%0Ab").unwrap_err(), UrlError::BadName(_)));
        assert!(matches!(url("postgres://h/db/a?x=1").unwrap_err(), UrlError::Connection(_)));
    }
}
