//! Connections.

use super::{Database, Place, StoreError, database, migrations};
use sqlx::{
    AnyConnection, AnyPool, AssertSqlSafe, Executor as _,
    any::{AnyPoolOptions, install_default_drivers},
};
use std::{path::Path, time::Duration};
use tokio::{sync::OnceCell, time::timeout};

/// Connections: writers of rosters and of measurements come one at a time each, and a few
/// readers beside.
const CONNECTIONS: u32 = 5;

/// Beyond the patience with locks, how long the way to a server and its work may take.
const WAY: Duration = Duration::from_secs(8);

/// A transaction in which an oracle is silent for so long (its host froze, or is cut off) is
/// undone by the server, so that its lock does not stop the others.
const IDLE: Duration = Duration::from_secs(10);

/// Connections to one database, which was looked at before the first is used.
pub(super) struct Pool {
    pool: AnyPool,
    place: Place,
    patience: Duration,
    ready: OnceCell<()>,
}

impl Pool {
    /// Nothing is connected yet.
    pub fn of(database: &Database, file: &Path, patience: Duration) -> Result<Self, StoreError> {
        install_default_drivers();
        let (options, place) = match database {
            Database::File => (database::file_options(file), Place::File(file.into())),
            Database::Server(server) => (Ok(server.options()), server.place().clone()),
        };
        let options = options.map_err(|error| StoreError::of(&place, error))?;
        let set = match database {
            Database::File => sqlite(patience),
            Database::Server(_) => postgres(patience),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(patience + Duration::from_secs(1))
            .after_connect(move |connection, _| Box::pin(run(connection, set.clone())))
            .connect_lazy_with(options);
        Ok(Self { pool, place, patience, ready: OnceCell::new() })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The longest that anything may take.
    pub fn limit(&self) -> Duration {
        self.patience + WAY
    }

    /// Looks at the database and brings it to this version's form, once; then its connections.
    pub async fn ready(&self) -> Result<&AnyPool, StoreError> {
        let prepare = timeout(self.limit(), self.prepare());
        let prepared = async { prepare.await.map_err(|_| StoreError::silent(&self.place))? };
        self.ready.get_or_try_init(|| prepared).await?;
        Ok(&self.pool)
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if let Place::File(_) = self.place {
            self.check().await?;
        }
        migrations::run(&self.pool, &self.place).await
    }

    /// Finds damage before anything is built on it.
    async fn check(&self) -> Result<(), StoreError> {
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| StoreError::of(&self.place, error))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(StoreError::damaged(&self.place, found)),
        }
    }

    /// Ends all connections.
    pub async fn close(&self) {
        // A server that is silent does not say goodbye either.
        let _ = timeout(WAY, self.pool.close()).await;
    }
}

async fn run(connection: &mut AnyConnection, text: String) -> sqlx::Result<()> {
    // Made of our own numbers alone.
    connection.execute(AssertSqlSafe(text)).await.map(drop)
}

/// What each connection of SQLite is set to. A version that was published must outlive a
/// power failure.
fn sqlite(patience: Duration) -> String {
    let patience = patience.as_millis();
    format!(
        "PRAGMA busy_timeout = {patience}; PRAGMA journal_mode = WAL; \
         PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"
    )
}

/// What each connection of PostgreSQL is set to. The level is PostgreSQL's default, which
/// the server's settings may have changed: whoever waited for a lock must see what its
/// last holder has left.
fn postgres(patience: Duration) -> String {
    let (patience, idle) = (patience.as_millis(), IDLE.as_millis());
    format!(
        "SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {idle}; \
         SET default_transaction_isolation = 'read committed'"
    )
}
