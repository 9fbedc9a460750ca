//! Databases that are newer, locked, unreachable or refuse the login.

use super::{Home, on_both};
use crate::store::{Database, Server, Store, StoreError, postgres};
use std::time::Duration;

const IMPATIENT: Duration = Duration::from_millis(300);

on_both!(a_newer_database_is_reported_and_left_unchanged);

async fn a_newer_database_is_reported_and_left_unchanged(home: Home) {
    let store = home.open().await;
    let mut session = store.session().await.unwrap();
    let later = "INSERT INTO _sqlx_migrations \
                 (version, description, installed_on, success, checksum, execution_time) \
                 SELECT 99, 'later', installed_on, success, checksum, 0 \
                 FROM _sqlx_migrations WHERE version = 1";
    session.run(sqlx::query(later)).await.unwrap();
    drop(session);
    store.close().await;
    let again = match &home {
        Home::File(dir) => {
            Store::at(&Database::File, &dir.path().join("oracle.db"), IMPATIENT).unwrap()
        }
        Home::Server(url) => {
            let server = Server::new(url, None).unwrap();
            Store::at(&Database::Server(server), "".as_ref(), IMPATIENT).unwrap()
        }
    };
    let error = again.ready().await.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 2, .. }), "{told}");
    assert!(told.contains("later version") && told.contains("Nothing was changed"), "{told}");
    assert!(matches!(again.mesh().await.unwrap_err(), StoreError::Newer { .. }));
}

async fn refused(url: &str) -> StoreError {
    let server = Database::Server(Server::new(url, None).unwrap());
    Store::at(&server, "".as_ref(), IMPATIENT).unwrap().ready().await.unwrap_err()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().to_str().unwrap().replace('/', "%2F");
    let error = refused(&format!("postgres://me:hush@{socket}/x")).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[tokio::test]
async fn refusals_of_the_server_are_reported_verbatim() {
    let Some(cluster) = postgres::shared() else { return };
    let url = cluster.url();
    let missing = refused(&url.replace("/postgres", "/nothing")).await;
    let told = missing.to_string();
    assert!(matches!(missing, StoreError::Denied { .. }), "{told}");
    assert!(told.contains("\"nothing\" does not exist"), "{told}");
    let nobody = refused(&url.replace("thalweg@", "nobody-here:hush@")).await;
    assert!(matches!(nobody, StoreError::Denied { .. }), "{nobody}");
    assert!(!nobody.to_string().contains("hush"), "{nobody}");
    // A standby, or a server that is set to read-only.
    let place = cluster.new_schema().await;
    let error = refused(&format!("{place}&options[default_transaction_read_only]=on")).await;
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
    // The URL requires TLS, which the server does not have. Sockets ignore `sslmode`, so use TCP.
    let error = refused("postgres://me@127.0.0.1:1/x?sslmode=require").await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_lock_of_another_client_is_reported_and_passes() {
    use sqlx::{Connection as _, Executor as _};
    let Some(Home::Server(url)) = Home::server().await else { return };
    let store = Home::Server(url.clone()).open_with(IMPATIENT).await;
    let mut other = postgres::connect(&url).await;
    other.execute("BEGIN; LOCK TABLE mesh IN EXCLUSIVE MODE").await.unwrap();
    let error = store.write().await.err().unwrap();
    assert!(matches!(error, StoreError::Locked(_)), "{error}");
    assert!(store.mesh().await.unwrap().is_none(), "reads go on");
    // The ledger has a lock of its own.
    store.record(&Default::default()).await.unwrap();
    other.execute("ROLLBACK").await.unwrap();
    other.close().await.unwrap();
    store.write().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_killed_and_comes_back_is_used_again() {
    if postgres::shared().is_none() {
        return;
    }
    let mut cluster = postgres::Cluster::start().unwrap();
    let store = Home::Server(cluster.new_schema().await).open_with(Duration::from_secs(5)).await;
    let write = store.write().await.unwrap();
    cluster.stop();
    // Whether the commit took effect is unknown, so the error must not claim that it did not.
    let error = write.commit().await.unwrap_err();
    assert!(matches!(error, StoreError::Unsure(_)), "{error}");
    let error = store.mesh().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    cluster.launch().unwrap();
    assert!(store.mesh().await.unwrap().is_none());
    store.write().await.unwrap().commit().await.unwrap();
}
