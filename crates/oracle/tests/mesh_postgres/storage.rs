//! Servers that fail, are empty, or hold another mesh.

use crate::{
    harness::{Host, IMPATIENT, Mesh, database, newest, serves_on},
    postgres::{self, Cluster},
};
use sqlx::{Connection as _, Executor as _};
use std::fs;
use thalweg_oracle::{Caller, Config, Database, Event, Oracle, OracleError, StoreError};
use thalweg_wire::{Signer as _, mesh::RevokeRequest};

#[tokio::test]
async fn a_locked_row_only_stops_writes() {
    let mesh = Mesh::found_impatient().await;
    let Some(url) = &mesh.url else { return };
    let mut other = postgres::connect(url).await;
    other.execute("BEGIN; UPDATE mesh SET id = 1").await.unwrap();
    serves_on(&mesh, "locked by another program").await;
    // An oracle that starts meanwhile serves the stored roster, and publishes later.
    let started = mesh.open().await.unwrap();
    assert_eq!(newest(&started), mesh.newest());
    other.execute("ROLLBACK").await.unwrap();
    started.tick().await.unwrap();
    assert!(newest(&started).version > mesh.newest().version);
    mesh.joined("ber").await;
}

/// A mesh on its own server, which a test can kill.
async fn mesh_on_own_server() -> Option<(Cluster, Mesh)> {
    postgres::shared()?;
    let cluster = Cluster::start().unwrap();
    let mesh = Mesh::found_impatient().await;
    mesh.joined("ber").await;
    mesh.oracle.run(async {}).await;
    // The state moves there: the empty database is filled from the signed copy.
    let url = cluster.new_schema().await;
    fs::remove_file(mesh.path().join("database")).unwrap();
    let moved = Mesh { url: Some(url), ..mesh };
    let oracle = moved.open().await.unwrap();
    Some((cluster, Mesh { oracle, ..moved }))
}

#[tokio::test]
async fn an_unreachable_server_only_stops_writes_even_at_the_start() {
    let Some((mut cluster, mesh)) = mesh_on_own_server().await else { return };
    assert!(mesh.newest().by_name(&"ber".parse().unwrap()).is_some(), "moved with its members");
    cluster.stop();
    serves_on(&mesh, "cannot be reached").await;
    let before = mesh.newest();
    let started = mesh.open().await.unwrap();
    assert_eq!(newest(&started), before);
    assert!(started.tick().await.is_err());
    cluster.launch().unwrap();
    started.tick().await.unwrap();
    assert!(newest(&started).version > before.version);
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest(), newest(&started));
    mesh.joined("ham").await;
}

#[tokio::test]
async fn a_restored_database_is_updated_from_the_signed_copy() {
    let mesh = Mesh::found().await;
    let Some(url) = mesh.url.clone() else { return };
    let goes = mesh.joined("goes").await;
    let mut other = postgres::connect(&url).await;
    let keep = "CREATE TABLE kept AS SELECT * FROM mesh; CREATE TABLE there AS SELECT * FROM \
                members; CREATE TABLE had AS SELECT * FROM keys";
    other.execute(keep).await.unwrap();
    let request = RevokeRequest { member: "goes".into() };
    mesh.oracle.revoke(&Caller::Local, request).await.unwrap();
    let last = mesh.newest();
    let restore = "TRUNCATE mesh, members, keys; INSERT INTO mesh SELECT * FROM kept; \
                   INSERT INTO members SELECT * FROM there; INSERT INTO keys SELECT * FROM had";
    other.execute(restore).await.unwrap();
    other.close().await.unwrap();
    let restored = Mesh { oracle: mesh.open().await.unwrap(), ..mesh };
    assert_eq!(restored.newest().members, last.members);
    assert!(restored.newest().version > last.version);
    let told = |e: &Event| matches!(e, Event::Restored { .. });
    assert!(restored.events.lock().unwrap().iter().any(told));
    let token = restored.token().await;
    assert_eq!(restored.join(&goes, &token).await.unwrap_err().code, "key_revoked");
}

#[tokio::test]
async fn a_database_is_founded_only_once_and_completely() {
    let mesh = Mesh::found().await;
    let Some(url) = &mesh.url else { return };
    let dir = mesh.dir.path().join("another");
    let again = Oracle::create(&dir, Host::new("x").member(), mesh.config()).await.unwrap_err();
    assert!(matches!(again, OracleError::Taken(_)), "{again}");
    assert!(!dir.exists());
    assert_eq!(newest(&mesh.open().await.unwrap()).members, mesh.newest().members);
    // A start was interrupted before the server's commit, so the copy fills the database.
    let mut other = postgres::connect(url).await;
    other.execute("TRUNCATE mesh, members, keys, tokens, events").await.unwrap();
    let anew = mesh.open().await.unwrap();
    assert_eq!(newest(&anew).members, mesh.newest().members);
    // With neither a database nor a copy, the oracle does not start.
    other.execute("TRUNCATE mesh, members, keys, tokens, events").await.unwrap();
    fs::remove_file(mesh.path().join("roster")).unwrap();
    let error = mesh.open().await.unwrap_err();
    assert!(matches!(error, OracleError::Empty(_)), "{error}");
}

#[tokio::test]
async fn lost_settings_do_not_create_a_second_state() {
    let mesh = Mesh::found().await;
    if mesh.url.is_none() {
        return;
    }
    let config = Config { database: Database::File, ..mesh.config() };
    let error = Oracle::open(&mesh.path(), mesh.founder.node.id(), config).await.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, OracleError::Elsewhere { .. }), "{told}");
    assert!(told.contains("PostgreSQL") && told.contains("[oracle]"), "{told}");
    assert!(!mesh.path().join("oracle.db").exists());
}

#[tokio::test]
async fn the_database_of_another_mesh_is_left_unchanged() {
    let (mesh, other) = (Mesh::found().await, Mesh::found().await);
    let Some(url) = &other.url else { return };
    let config = Config { database: database(Some(url)), ..mesh.config() };
    let error = Oracle::open(&mesh.path(), mesh.founder.node.id(), config).await.unwrap_err();
    assert!(matches!(error, OracleError::OtherMesh { .. }), "{error}");
    other.joined("ber").await;
}

#[tokio::test]
async fn an_empty_database_is_not_filled_if_another_holds_the_state() {
    let mesh = Mesh::found().await;
    if mesh.url.is_none() {
        return;
    }
    let other = postgres::shared().unwrap().url().replace("/postgres", "/template1");
    let config = Config { database: database(Some(&other)), ..mesh.config() };
    let error = Oracle::open(&mesh.path(), mesh.founder.node.id(), config.clone()).await;
    assert!(matches!(error.as_ref().unwrap_err(), OracleError::Empty(_)), "{error:?}");
    // Nor by an oracle that is new in the mesh, since it has no state to move.
    let new = mesh.dir.path().join("new");
    fs::create_dir(&new).unwrap();
    fs::copy(mesh.path().join("mesh.key"), new.join("mesh.key")).unwrap();
    let cached = Some(mesh.path().join("roster"));
    let config = Config { cached, ..config };
    let error = Oracle::open(&new, mesh.founder.node.id(), config).await.unwrap_err();
    assert!(matches!(error, OracleError::Empty(_)), "{error}");
}

#[tokio::test]
async fn refusals_of_the_server_are_reported() {
    let mesh = Mesh::found_in(tempfile::tempdir().unwrap(), Default::default(), IMPATIENT).await;
    let Some(url) = &mesh.url else { return };
    let url = url.replace("thalweg@", "nobody-here:hush@");
    let config = Config { database: database(Some(&url)), ..mesh.config() };
    let error = Oracle::open(&mesh.path(), mesh.founder.node.id(), config).await.unwrap_err();
    assert!(matches!(error, OracleError::Store(StoreError::Denied { .. })), "{error}");
    assert!(error.to_string().contains("password") && !error.to_string().contains("hush"));
}
