//! Migration of the database's schema.

use super::{DatabaseName, StoreError};
use sqlx::{
    AnyPool, SqlStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

/// The migrations. A released one never changes.
const STEPS: [(&str, &str); 2] = [
    ("mesh", include_str!("../../migrations/0001_mesh.sql")),
    ("measurements", include_str!("../../migrations/0002_measurements.sql")),
];

/// The schema version of this program.
const KNOWN: i64 = STEPS.len() as i64;

/// Builds the same as `sqlx::migrate!`, without its build-time machinery.
fn migrator() -> Migrator {
    let step = |(version, (name, text)): (i64, (&'static str, &'static str))| {
        let kind = MigrationType::Simple;
        Migration::new(version, name.into(), kind, SqlStr::from_static(text), false)
    };
    Migrator::with_migrations((1..).zip(STEPS).map(step).collect())
}

/// Migrates the database to this version's schema. A database of a later version is left unchanged.
pub(super) async fn run(pool: &AnyPool, place: &DatabaseName) -> Result<(), StoreError> {
    let told = |error| StoreError::migration(place, KNOWN, error);
    match migrator().run(pool).await {
        // SQLite has no migration lock, so another process may have applied the migration first.
        Err(MigrateError::ExecuteMigration(..)) => migrator().run(pool).await.map_err(told),
        done => done.map_err(told),
    }
}
