//! Connections.

use super::{Database, Place, StoreError, database, migrations};
use sqlx::{
    AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _,
    any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers},
};
use std::{path::Path, time::Duration};
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

/// Connections: writers of rosters and of measurements come one at a time each, and a few
/// readers beside.
const CONNECTIONS: u32 = 5;

/// Beyond the patience with locks, how long the way to a server and its work may take.
const WAY: Duration = Duration::from_secs(8);

/// At the end, how long connections that were given up are waited for, and how often is looked.
const LAST: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(20);

/// A transaction in which an oracle is silent for so long (its host froze, or is cut off) is
/// undone by the server, so that its lock does not stop the others.
const IDLE: Duration = Duration::from_secs(10);

/// Connections to one database, which was looked at before the first is used.
pub(super) struct Pool {
    pool: AnyPool,
    settings: Settings,
    place: Place,
    patience: Duration,
    ready: OnceCell<()>,
}

/// How connections are made.
#[derive(Clone)]
struct Settings {
    options: AnyConnectOptions,
    /// Statements that each begins with.
    first: String,
    acquire: Duration,
}

impl Settings {
    fn pool(&self, connections: u32) -> AnyPool {
        let first = self.first.clone();
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.acquire)
            .after_connect(move |connection, _| Box::pin(run(connection, first.clone())))
            .connect_lazy_with(self.options.clone())
    }
}

impl Pool {
    /// Nothing is connected yet.
    pub fn of(database: &Database, file: &Path, patience: Duration) -> Result<Self, StoreError> {
        install_default_drivers();
        let (options, place, first) = match database {
            Database::File => {
                (database::file_options(file), Place::File(file.into()), sqlite(patience))
            }
            Database::Server(server) => {
                (Ok(server.options()), server.place().clone(), postgres(patience))
            }
        };
        let options = options.map_err(|error| StoreError::of(&place, error))?;
        let settings = Settings { options, first, acquire: patience + Duration::from_secs(1) };
        let (pool, ready) = (settings.pool(CONNECTIONS), OnceCell::new());
        Ok(Self { pool, settings, place, patience, ready })
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
        let prepared = async {
            match self.place {
                // A large file takes its time to be looked through.
                Place::File(_) => self.prepare().await,
                Place::Server(_) => timeout(self.limit(), self.prepare())
                    .await
                    .map_err(|_| StoreError::silent(&self.place))?,
            }
        };
        self.ready.get_or_try_init(|| prepared).await?;
        Ok(&self.pool)
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if let Place::File(_) = self.place {
            self.check().await?;
        }
        // On a connection of its own: a failed attempt would keep PostgreSQL's lock on it.
        let own = self.settings.pool(1);
        let done = migrations::run(&own, &self.place).await;
        own.close().await;
        done
    }

    /// Finds damage before anything is built on it. Not by the pool, which would try what
    /// fails at its first statements until its time is over.
    async fn check(&self) -> Result<(), StoreError> {
        let wrong = |error| StoreError::of(&self.place, error);
        let mut connection = self.settings.options.connect().await.map_err(wrong)?;
        run(&mut connection, self.settings.first.clone()).await.map_err(wrong)?;
        let asked = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut connection);
        let found: String = asked.await.map_err(wrong)?;
        // What was found counts.
        let _ = connection.close().await;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(StoreError::damaged(&self.place, found)),
        }
    }

    /// Ends all connections.
    pub async fn close(&self) {
        // A server that is silent does not say goodbye either.
        let _ = timeout(WAY, self.pool.close()).await;
        if let Place::File(file) = &self.place {
            let _ = timeout(LAST, self.leave_whole(file)).await;
        }
    }

    /// Waits until no `-wal` is beside the file: SQLite's last connection takes it away. Those
    /// that were given up in the middle of a statement or of their beginning end on threads of
    /// their own, which nobody else awaits.
    async fn leave_whole(&self, file: &Path) {
        let mut wal = file.as_os_str().to_owned();
        wal.push("-wal");
        while Path::new(&wal).exists() {
            let Ok(mut last) = self.settings.options.connect().await else { return };
            let done = last.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
            let closed = last.close().await;
            if done.is_err() || closed.is_err() {
                // Damaged or full: what is there stays for the next start.
                return;
            }
            sleep(AGAIN).await;
        }
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
