//! Configuration of the database, and its name in messages.

use sqlx::{
    ConnectOptions as _, any::AnyConnectOptions, postgres::PgConnectOptions,
    sqlite::SqliteConnectOptions,
};
use std::{
    fmt,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// The database that keeps an oracle's durable state.
#[derive(Clone, Debug, Default)]
pub enum Database {
    /// SQLite: a file in the oracle's directory.
    #[default]
    File,
    /// PostgreSQL or a compatible server; several oracles may share it.
    Server(Server),
}

/// A PostgreSQL database and its connection options. Its `Debug` and [`DatabaseName`] show no password.
#[derive(Clone)]
pub struct Server {
    options: AnyConnectOptions,
    place: DatabaseName,
}

/// An error in a database's URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// The scheme is not PostgreSQL's.
    #[error("a database's URL begins with postgres:// or postgresql://")]
    Scheme,
    /// A parameter that sqlx would ignore.
    #[error(
        "the database's URL has the unknown parameter `{0}`; the known parameters are sslmode, \
         sslrootcert, sslcert, sslkey, host, hostaddr, port, user, password, dbname, options, \
         application_name"
    )]
    Parameter(String),
    /// The URL cannot be parsed.
    #[error("cannot read the database's URL: {0}")]
    Unreadable(String),
}

/// The accepted parameters. sqlx ignores all others, and a misspelt `sslmode` must not silently disable TLS.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
];

impl Server {
    /// The database at a URL (`postgres://USER@HOST:PORT/NAME?sslmode=verify-full`). `password` replaces the URL's; if
    /// neither has one, `PGPASSWORD` and `~/.pgpass` apply, as in other clients of PostgreSQL.
    ///
    /// # Errors
    /// [`UrlError`], which contains no password.
    pub fn new(url: &str, password: Option<&str>) -> Result<Self, UrlError> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(UrlError::Scheme);
        }
        let unreadable = |error: sqlx::Error| UrlError::Unreadable(error.to_string());
        let mut options: AnyConnectOptions = url.parse().map_err(unreadable)?;
        if let Some(name) = unknown_parameter(&options) {
            return Err(UrlError::Parameter(name));
        }
        if let Some(password) = password {
            let set = options.database_url.set_password(Some(&encoded(password)));
            set.map_err(|()| UrlError::Unreadable("it cannot have a password".into()))?;
        }
        let known = PgConnectOptions::from_url(&options.database_url).map_err(unreadable)?;
        Ok(Self { options, place: DatabaseName::Server(called(&known)) })
    }

    pub(super) fn options(&self) -> AnyConnectOptions {
        self.options.clone()
    }

    /// The database's name in messages.
    pub fn place(&self) -> &DatabaseName {
        &self.place
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.place)
    }
}

/// Encodes every byte as `%XX`, because the URL parser would decode a literal `%` sequence in the password.
fn encoded(password: &str) -> String {
    password.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn unknown_parameter(options: &AnyConnectOptions) -> Option<String> {
    let keys = options.database_url.query_pairs().map(|(key, _)| key);
    let mut strange =
        keys.filter(|key| !PARAMETERS.contains(&&**key) && !key.starts_with("options["));
    strange.next().map(|key| key.chars().take(40).collect())
}

fn called(options: &PgConnectOptions) -> String {
    // Like PostgreSQL, default to the user's name.
    let name = options.get_database().unwrap_or_else(|| options.get_username());
    let port = options.get_port();
    match options.get_socket() {
        Some(dir) => format!("{name} (PostgreSQL, socket {}, port {port})", dir.display()),
        None => format!("{name} (PostgreSQL at {}:{port})", options.get_host()),
    }
}

/// Options for an SQLite file, which must exist.
pub(super) fn file_options(file: &Path) -> sqlx::Result<AnyConnectOptions> {
    let sqlite = SqliteConnectOptions::new().filename(file).create_if_missing(false);
    AnyConnectOptions::from_url(&sqlite.to_url_lossy())
}

/// A database's name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseName {
    /// The path of an SQLite file.
    File(PathBuf),
    /// The name and the location of a PostgreSQL database.
    Server(String),
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Server(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let url = "postgres://me:hush%20hush@db.example:5433/thalweg?sslmode=verify-full";
        for server in [Server::new(url, None), Server::new(url, Some("other secret"))] {
            let server = server.unwrap();
            let shown = format!("{server:?} {}", server.place());
            assert!(shown.contains("thalweg (PostgreSQL at db.example:5433)"), "{shown}");
            assert!(!shown.contains("hush") && !shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_separate_password_is_used_verbatim() {
        let password = "p@ss/w:rd%41 ü";
        let server = Server::new("postgres://me@db/thalweg", Some(password)).unwrap();
        let url = server.options.database_url;
        let pg = PgConnectOptions::from_url(&url).unwrap();
        let shown = format!("{pg:?}");
        assert!(shown.contains(&format!("{password:?}")), "{shown}");
    }

    #[test]
    fn bad_urls_are_refused_without_their_secrets() {
        let scheme = Server::new("mysql://me:hush@db/x", None).unwrap_err();
        assert_eq!(scheme, UrlError::Scheme);
        let typo = Server::new("postgres://me:hush@db/x?sslmod=verify-full", None).unwrap_err();
        assert_eq!(typo, UrlError::Parameter("sslmod".into()));
        for url in ["postgres://me:hush@db:99999/x", "postgres://me:hush@db/x?sslmode=maybe"] {
            let error = Server::new(url, None).unwrap_err();
            assert!(matches!(error, UrlError::Unreadable(_)), "{error}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
}
