//! Tests of the store. Each test of these modules runs on SQLite and on PostgreSQL.

mod errors;
mod lease;
mod ledger;
mod tls;

use super::{Database, Server, Store, postgres};
use std::time::Duration;
use tempfile::TempDir;

/// Long, so that a busy machine does not look like a locked database.
const PATIENT: Duration = Duration::from_secs(60);

/// An empty database for one test.
pub(super) enum Home {
    File(TempDir),
    Server(String),
}

impl Home {
    pub fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// `None` if PostgreSQL is not installed.
    pub async fn server() -> Option<Self> {
        Some(Self::Server(postgres::shared()?.new_schema().await))
    }

    /// Opens a store as one oracle would; the first creates the tables.
    pub async fn open(&self) -> Store {
        self.open_with(PATIENT).await
    }

    pub async fn open_with(&self, patience: Duration) -> Store {
        let store = match self {
            Self::File(dir) => {
                let file = dir.path().join("oracle.db");
                match file.exists() {
                    true => Store::at(&Database::File, &file, patience).unwrap(),
                    false => Store::create(&file, patience).await.unwrap(),
                }
            }
            Self::Server(url) => {
                let server = Database::Server(Server::new(url, None).unwrap());
                Store::at(&server, "".as_ref(), patience).unwrap()
            }
        };
        store.ready().await.unwrap();
        store
    }
}

/// Generates two tests, one per database, from each function that takes a [`Home`].
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            use super::super::Home;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(Home::file()).await;
            })*
        }
        mod on_postgres {
            use super::super::Home;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(home) = Home::server().await {
                    super::$test(home).await;
                }
            })*
        }
    };
}
pub(super) use on_both;
