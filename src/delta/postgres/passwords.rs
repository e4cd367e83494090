//! Passwords: `PGPASSWORD`, or the file `PGPASSFILE` (by default `~/.pgpass`), as libpq has them.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The largest file of passwords that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The home directory of [`use_home`].
static HOME: OnceLock<PathBuf> = OnceLock::new();

/// PostgreSQL's port.
const DEFAULT_PORT: u16 = 5432;

/// From here on, the default file of passwords is in this home directory: of the user who called
/// `sudo`.
pub fn use_home(home: &Path) {
    HOME.get_or_init(|| home.to_owned());
}

/// The password for a connection, if there is one.
///
/// # Errors
/// There is a file, and it cannot be read.
pub fn find(config: &Config) -> io::Result<Option<String>> {
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let home = || HOME.get().cloned().or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    let file = named.or_else(|| home().map(|home| home.join(".pgpass")));
    let Some(file) = file else { return Ok(None) };
    let file = match fs::File::open(&file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let about = file.metadata()?;
    if about.mode() & 0o077 != 0 {
        tracing::warn!("the file with passwords is not used: others may read it (chmod 600)");
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(in_file(&text, &wanted(config)))
}

/// Host, port, database and user of a connection.
fn wanted(config: &Config) -> [String; 4] {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
    let user = config.get_user().unwrap_or_default().to_owned();
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    [host, port.to_string(), database, user]
}

/// The password of the first line that matches: `host:port:database:user:password`.
fn in_file(text: &str, wanted: &[String; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, keys) = fields.split_last()?;
        let is_it = |(key, wanted): (&String, &String)| key == "*" || key == wanted;
        let is_line = keys.len() == wanted.len() && keys.iter().zip(wanted).all(is_it);
        is_line.then(|| password.clone())
    })
}

/// The fields of a line; `\` takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            '\\' => fields[last].extend(characters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let text = "# a comment\nother:5432:db:me:no\nhost:*:d\\:b:me:se\\\\cr:et\n*:*:*:*:any\n";
        let wanted = |host: &str, database: &str| [host, "5433", database, "me"].map(str::to_owned);
        assert_eq!(in_file(text, &wanted("host", "d:b")).as_deref(), Some("se\\cr:et"));
        assert_eq!(in_file(text, &wanted("host", "db")).as_deref(), Some("any"));
        assert_eq!(in_file("host:*:db:me", &wanted("host", "db")), None, "a line too short");
    }
}
