//! The connection pool.

use super::{Database, DatabaseName, StoreError, database, migrations};
use sqlx::{
    AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _,
    any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers},
};
use std::{path::Path, time::Duration};
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

/// The most connections: one writer of rosters, one writer of measurements, and a few readers.
const CONNECTIONS: u32 = 5;

/// The time allowed for the network and the server's work, in addition to the patience with locks.
const SERVER_TIME: Duration = Duration::from_secs(8);

/// When the pool closes, how long to wait for abandoned connections, and how often to check.
const CLOSE_TIME: Duration = Duration::from_secs(3);
const CLOSE_POLL: Duration = Duration::from_millis(20);

/// The server aborts a transaction in which an oracle is silent for this long (its host froze or lost its network), so
/// that its lock does not block the others.
const IDLE: Duration = Duration::from_secs(10);

/// Connections to one database, which is checked before the first is used.
pub(super) struct Pool {
    pool: AnyPool,
    settings: Settings,
    place: DatabaseName,
    patience: Duration,
    ready: OnceCell<()>,
}

/// How to open a connection.
#[derive(Clone)]
struct Settings {
    options: AnyConnectOptions,
    /// Statements that set up each connection.
    setup: String,
    acquire: Duration,
}

impl Settings {
    fn pool(&self, connections: u32) -> AnyPool {
        let setup = self.setup.clone();
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.acquire)
            .after_connect(move |connection, _| Box::pin(run(connection, setup.clone())))
            .connect_lazy_with(self.options.clone())
    }
}

impl Pool {
    /// Creates the pool without connecting.
    pub fn of(database: &Database, file: &Path, patience: Duration) -> Result<Self, StoreError> {
        install_default_drivers();
        let (options, place, setup) = match database {
            Database::File => {
                (database::file_options(file), DatabaseName::File(file.into()), sqlite(patience))
            }
            Database::Server(server) => {
                (Ok(server.options()), server.place().clone(), postgres(patience))
            }
        };
        let options = options.map_err(|error| StoreError::of(&place, error))?;
        let settings = Settings { options, setup, acquire: patience + Duration::from_secs(1) };
        let (pool, ready) = (settings.pool(CONNECTIONS), OnceCell::new());
        Ok(Self { pool, settings, place, patience, ready })
    }

    /// The database for messages, without its password.
    pub fn place(&self) -> &DatabaseName {
        &self.place
    }

    /// The time limit for any operation.
    pub fn limit(&self) -> Duration {
        self.patience + SERVER_TIME
    }

    /// Returns the pool. The first call checks the database and migrates it to this version's schema.
    pub async fn ready(&self) -> Result<&AnyPool, StoreError> {
        let prepared = async {
            match self.place {
                // Checking a large file takes long, so there is no time limit.
                DatabaseName::File(_) => self.prepare().await,
                DatabaseName::Server(_) => timeout(self.limit(), self.prepare())
                    .await
                    .map_err(|_| StoreError::silent(&self.place))?,
            }
        };
        self.ready.get_or_try_init(|| prepared).await?;
        Ok(&self.pool)
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if let DatabaseName::File(_) = self.place {
            self.check().await?;
        }
        // On a connection of its own, because a failed migration would keep PostgreSQL's lock on its connection.
        let own = self.settings.pool(1);
        let done = migrations::run(&own, &self.place).await;
        own.close().await;
        done
    }

    /// Detects damage before the database is used. On a connection outside the pool, because the pool would retry
    /// failing set-up statements until its timeout.
    async fn check(&self) -> Result<(), StoreError> {
        let wrong = |error| StoreError::of(&self.place, error);
        let mut connection = self.settings.options.connect().await.map_err(wrong)?;
        run(&mut connection, self.settings.setup.clone()).await.map_err(wrong)?;
        let asked = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut connection);
        let found: String = asked.await.map_err(wrong)?;
        // The result is known, so an error on closing does not matter.
        let _ = connection.close().await;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(StoreError::damaged(&self.place, found)),
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        // An unresponsive server does not answer the closing handshake either.
        let _ = timeout(SERVER_TIME, self.pool.close()).await;
        if let DatabaseName::File(file) = &self.place {
            let _ = timeout(CLOSE_TIME, self.remove_wal(file)).await;
        }
    }

    /// Waits until the file's `-wal` is gone, which SQLite's last connection removes. Connections that were abandoned
    /// in the middle of a statement or of opening end on threads of their own, which nothing else awaits.
    async fn remove_wal(&self, file: &Path) {
        let mut wal = file.as_os_str().to_owned();
        wal.push("-wal");
        while Path::new(&wal).exists() {
            let Ok(mut last) = self.settings.options.connect().await else { return };
            let done = last.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
            let closed = last.close().await;
            if done.is_err() || closed.is_err() {
                // Damaged or full: leave the `-wal` for the next start.
                return;
            }
            sleep(CLOSE_POLL).await;
        }
    }
}

async fn run(connection: &mut AnyConnection, text: String) -> sqlx::Result<()> {
    // The text contains only our own numbers.
    connection.execute(AssertSqlSafe(text)).await.map(drop)
}

/// The set-up of each SQLite connection. A published version must survive a power failure, hence `synchronous = FULL`.
fn sqlite(patience: Duration) -> String {
    let patience = patience.as_millis();
    format!(
        "PRAGMA busy_timeout = {patience}; PRAGMA journal_mode = WAL; \
         PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"
    )
}

/// The set-up of each PostgreSQL connection. The isolation level is PostgreSQL's default, but the server's settings may
/// have changed it: a transaction that waited for a lock must see the writes of the lock's last holder.
fn postgres(patience: Duration) -> String {
    let (patience, idle) = (patience.as_millis(), IDLE.as_millis());
    format!(
        "SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {idle}; \
         SET default_transaction_isolation = 'read committed'"
    )
}
