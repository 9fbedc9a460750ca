//! Which database, and what it is called in messages.

use sqlx::{
    ConnectOptions as _, any::AnyConnectOptions, postgres::PgConnectOptions,
    sqlite::SqliteConnectOptions,
};
use std::{
    fmt,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Where an oracle keeps what must not be lost.
#[derive(Clone, Debug, Default)]
pub enum Database {
    /// SQLite: a file in the oracle's directory.
    #[default]
    File,
    /// PostgreSQL, or what speaks its protocol; several oracles may share it.
    Server(Server),
}

/// A PostgreSQL database and how to come in. Its `Debug` and [`Place`] show no password.
#[derive(Clone)]
pub struct Server {
    options: AnyConnectOptions,
    place: Place,
}

/// What is wrong with a database's URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("a database's URL begins with postgres:// or postgresql://")]
    Scheme,
    /// A parameter that would be passed over.
    #[error(
        "the database's URL has the parameter `{0}`, which is not known here; there are: sslmode, \
         sslrootcert, sslcert, sslkey, host, hostaddr, port, user, password, dbname, options, \
         application_name"
    )]
    Parameter(String),
    /// It cannot be read.
    #[error("the database's URL: {0}")]
    Unreadable(String),
}

/// The parameters that count; sqlx passes over others, and a misspelt `sslmode` must not be
/// as good as none.
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
    /// The database at a URL (`postgres://USER@HOST:PORT/NAME?sslmode=verify-full`), with this
    /// password instead of the URL's, if it is given. Without any, `PGPASSWORD` and
    /// `~/.pgpass` count, as for other clients of PostgreSQL.
    ///
    /// # Errors
    /// [`UrlError`], which tells no password.
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
            set.map_err(|()| UrlError::Unreadable("it has no place for a password".into()))?;
        }
        let known = PgConnectOptions::from_url(&options.database_url).map_err(unreadable)?;
        Ok(Self { options, place: Place::Server(called(&known)) })
    }

    pub(super) fn options(&self) -> AnyConnectOptions {
        self.options.clone()
    }

    /// Its name in messages.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.place)
    }
}

/// Every byte as `%XX`: the URL would take a `%` in a password for such.
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
    // PostgreSQL's own default.
    let name = options.get_database().unwrap_or_else(|| options.get_username());
    let port = options.get_port();
    match options.get_socket() {
        Some(dir) => format!("{name} (PostgreSQL, socket {}, port {port})", dir.display()),
        None => format!("{name} (PostgreSQL at {}:{port})", options.get_host()),
    }
}

/// How SQLite opens a file, which must be there.
pub(super) fn file_options(file: &Path) -> sqlx::Result<AnyConnectOptions> {
    let sqlite = SqliteConnectOptions::new().filename(file).create_if_missing(false);
    AnyConnectOptions::from_url(&sqlite.to_url_lossy())
}

/// A database's name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// SQLite's file.
    File(PathBuf),
    /// PostgreSQL's database, and where it is.
    Server(String),
}

impl fmt::Display for Place {
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
    fn a_password_from_elsewhere_is_taken_as_it_is() {
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
