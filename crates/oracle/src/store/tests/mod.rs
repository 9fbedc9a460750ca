//! The store on both databases: every test of these modules runs on each.

mod errors;
mod lease;
mod ledger;
mod tls;

use super::{Database, Server, Store, postgres};
use std::time::Duration;
use tempfile::TempDir;

/// So that a busy machine is no locked database.
const PATIENT: Duration = Duration::from_secs(60);

/// An empty place for one test's tables.
pub(super) enum Home {
    File(TempDir),
    Server(String),
}

impl Home {
    pub fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// None where there is no PostgreSQL.
    pub async fn server() -> Option<Self> {
        Some(Self::Server(postgres::shared()?.place().await))
    }

    /// A handle of an oracle; the first makes the tables.
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

/// Makes two tests of each function that takes a [`Home`].
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
