//! The database's form, brought up step by step.

use super::{Place, StoreError};
use sqlx::{
    AnyPool, SqlStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

/// The steps, which are never changed once they are released.
const STEPS: [(&str, &str); 2] = [
    ("mesh", include_str!("../../migrations/0001_mesh.sql")),
    ("measurements", include_str!("../../migrations/0002_measurements.sql")),
];

/// This version's form.
const KNOWN: i64 = STEPS.len() as i64;

/// What `sqlx::migrate!` would make, without its build-time machinery.
fn migrator() -> Migrator {
    let step = |(version, (name, text)): (i64, (&'static str, &'static str))| {
        let kind = MigrationType::Simple;
        Migration::new(version, name.into(), kind, SqlStr::from_static(text), false)
    };
    Migrator::with_migrations((1..).zip(STEPS).map(step).collect())
}

/// Brings the database to this version's form; one of a later version stays as it is.
pub(super) async fn run(pool: &AnyPool, place: &Place) -> Result<(), StoreError> {
    let told = |error| StoreError::migration(place, KNOWN, error);
    match migrator().run(pool).await {
        // Without a lock for this, which SQLite has not, another process may have been faster.
        Err(MigrateError::ExecuteMigration(..)) => migrator().run(pool).await.map_err(told),
        done => done.map_err(told),
    }
}
