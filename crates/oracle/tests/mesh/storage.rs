//! Failing disks and databases.

use crate::harness::{Host, IMPATIENT, Mesh, get, newest, post, serves_on};
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};
use thalweg_net::PrivateKey;
use thalweg_oracle::{Caller, Event, Oracle, OracleError, StoreError};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{JoinReply, RevokeRequest, Roster},
};

async fn another_program(dir: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(dir.join("oracle.db"));
    SqliteConnection::connect_with(&options).await.unwrap()
}

#[tokio::test]
async fn a_locked_database_only_stops_writes() {
    let mesh = Mesh::found_impatient().await;
    let token = mesh.token().await;
    let mut other = another_program(&mesh.path()).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    serves_on(&mesh, "locked by another program").await;
    let host = Host::new("ber");
    assert_eq!(mesh.join(&host, &token).await.unwrap_err().code, "storage");
    mesh.hand.forward(Duration::from_secs(3 * 24 * 3600));
    assert!(mesh.oracle.tick().await.is_err(), "due and not possible");
    other.execute("COMMIT").await.unwrap();
    mesh.oracle.tick().await.unwrap();
    assert!(mesh.newest().check(mesh.hand.now()).is_ok());
    mesh.joined("ham").await;
}

#[tokio::test]
async fn a_start_on_a_locked_database_serves_the_stored_roster_and_publishes_later() {
    let mesh = Mesh::found_impatient().await;
    let kept = mesh.newest();
    let mut other = another_program(&mesh.path()).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let started = mesh.open().await.unwrap();
    assert_eq!(newest(&started), kept);
    other.execute("ROLLBACK").await.unwrap();
    started.tick().await.unwrap();
    assert!(newest(&started).version > kept.version);
}

#[tokio::test]
async fn a_full_disk_only_stops_writes() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: no file system can be mounted here (needs root)");
        return;
    };
    let dir = tempfile::tempdir_in(disk.0.path()).unwrap();
    let mesh = Mesh::found_in(dir, Default::default(), IMPATIENT).await;
    let filler = disk.0.path().join("filler");
    let full = fs::File::create(&filler).unwrap();
    let mut at = 0;
    while full.write_at(&[1; 4096], at).is_ok_and(|n| n > 0) {
        at += 4096;
    }
    serves_on(&mesh, "is full").await;
    drop(full);
    fs::remove_file(&filler).unwrap();
    mesh.joined("ber").await;
    drop(mesh);
}

/// A file system of 4 MiB in memory.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(dir.path());
        mount.status().ok()?.success().then(|| Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_damaged_database_is_reported_with_advice() {
    let mesh = Mesh::found().await;
    mesh.oracle.run(async {}).await;
    let file = mesh.path().join("oracle.db");
    let whole = fs::read(&file).unwrap();
    let page = 4096;
    let overwritten = |from: usize, to: usize| {
        let mut bytes = whole.clone();
        bytes[from..to].fill(0x5a);
        bytes
    };
    let cases = [
        overwritten(0, 100),
        overwritten(page, whole.len()),
        overwritten(100, page),
        whole[..page].to_vec(),
        b"nothing".to_vec(),
    ];
    for (n, bytes) in cases.iter().enumerate() {
        fs::write(&file, bytes).unwrap();
        let error = mesh.open().await.unwrap_err();
        assert!(matches!(error, OracleError::Store(StoreError::Damaged { .. })), "{n}: {error}");
        let text = error.to_string();
        assert!(text.contains(file.to_str().unwrap()) && text.contains("backup"), "{text}");
    }
}

#[tokio::test]
async fn damage_at_run_time_only_stops_writes() {
    let mesh = Mesh::found().await;
    let file = mesh.path().join("oracle.db");
    for name in ["oracle.db", "oracle.db-wal"] {
        let opened = fs::OpenOptions::new().write(true).open(mesh.path().join(name)).unwrap();
        let length = opened.metadata().unwrap().len();
        opened.write_all_at(&vec![0x5a; length as usize], 0).unwrap();
    }
    serves_on(&mesh, file.to_str().unwrap()).await;
}

#[tokio::test]
async fn an_empty_file_in_place_of_the_database_is_refused() {
    let mesh = Mesh::found().await;
    mesh.oracle.run(async {}).await;
    fs::write(mesh.path().join("oracle.db"), b"").unwrap();
    let error = mesh.open().await.unwrap_err();
    assert!(matches!(error, OracleError::Store(StoreError::Damaged { .. })), "{error}");
}

#[tokio::test]
async fn a_database_restored_from_a_backup_is_updated_from_the_signed_copy() {
    let mesh = Mesh::found().await;
    let stays = mesh.joined("stays").await;
    let open = mesh.token().await;
    let goes = mesh.joined("goes").await;
    let backup = mesh.dir.path().join("backup.db");
    let mut other = another_program(&mesh.path()).await;
    let into = format!("VACUUM INTO '{}'", backup.display());
    other.execute(sqlx::AssertSqlSafe(into)).await.unwrap();
    other.close().await.unwrap();
    // After the backup one member is revoked, and one joins with a token that is still open in the backup.
    let request = RevokeRequest { member: "goes".into() };
    post(&mesh.oracle, Caller::Local, "/v1/revoke", &request).await.result::<Value>().unwrap();
    mesh.join(&Host::new("came"), &open).await.unwrap();
    let last = mesh.newest();
    mesh.oracle.run(async {}).await;
    // As docs/mesh.md says, the files of the old database are removed with it. A connection that is still closing may
    // have left them.
    for beside in ["oracle.db-wal", "oracle.db-shm"] {
        _ = fs::remove_file(mesh.path().join(beside));
    }
    fs::rename(&backup, mesh.path().join("oracle.db")).unwrap();
    let restored = Mesh { oracle: mesh.open().await.unwrap(), ..mesh };
    let roster = restored.newest();
    assert!(roster.version > last.version);
    assert_eq!(roster.members, last.members);
    let is_restored = |e: &Event| matches!(e, Event::Restored { .. });
    assert!(restored.events.lock().unwrap().iter().any(is_restored));
    // The revoked key stays out, and the token cannot be used again.
    let token = restored.token().await;
    assert_eq!(restored.join(&goes, &token).await.unwrap_err().code, "key_revoked");
    assert_eq!(restored.join(&stays, &token).await.unwrap_err().code, "key_taken");
    assert_eq!(restored.join(&Host::new("x"), &open).await.unwrap_err().code, "token_unknown");
}

#[tokio::test]
async fn a_restored_and_locked_database_readmits_nobody() {
    let mesh = Mesh::found_impatient().await;
    mesh.joined("goes").await;
    let mut other = another_program(&mesh.path()).await;
    let kept: (i64, String) =
        sqlx::query_as("SELECT version, signed FROM mesh").fetch_one(&mut other).await.unwrap();
    let request = RevokeRequest { member: "goes".into() };
    post(&mesh.oracle, Caller::Local, "/v1/revoke", &request).await.result::<Value>().unwrap();
    let last = mesh.newest();
    // The database as before the revocation, then locked by another program.
    let back = "UPDATE mesh SET version = $1, signed = $2";
    sqlx::query(back).bind(kept.0).bind(kept.1).execute(&mut other).await.unwrap();
    let member = "INSERT INTO members SELECT 'goes', NULL, printf('%064d', 0), '[]', '[]', '[]', 0";
    other.execute(member).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let started = mesh.open().await.unwrap();
    assert_eq!(newest(&started), last);
    other.execute("ROLLBACK").await.unwrap();
    // The first change comes before the renewal here.
    started.set_rules(vec![Default::default()]).await.unwrap();
    assert!(newest(&started).version > last.version);
    assert_eq!(newest(&started).members, last.members);
}

#[tokio::test]
async fn a_lost_database_is_rebuilt_from_the_signed_copy() {
    let mesh = Mesh::found().await;
    mesh.joined("ber").await;
    let last = mesh.newest();
    mesh.oracle.run(async {}).await;
    for name in ["oracle.db", "oracle.db-wal", "oracle.db-shm"] {
        let _ = fs::remove_file(mesh.path().join(name));
    }
    let anew = mesh.open().await.unwrap();
    assert_eq!(newest(&anew).members, last.members);
    assert!(newest(&anew).version > last.version);
    drop(anew);
    for name in ["oracle.db", "oracle.db-wal", "oracle.db-shm", "roster"] {
        let _ = fs::remove_file(mesh.path().join(name));
    }
    assert!(matches!(mesh.open().await.unwrap_err(), OracleError::Missing(_)));
}

#[tokio::test]
async fn a_newer_cached_roster_wins_over_a_restored_directory() {
    let mesh = Mesh::found().await;
    mesh.joined("goes").await;
    mesh.oracle.run(async {}).await;
    let backup = mesh.dir.path().join("backup");
    fs::create_dir(&backup).unwrap();
    for name in ["mesh.key", "oracle.db", "roster"] {
        fs::copy(mesh.path().join(name), backup.join(name)).unwrap();
    }
    let since = mesh.open().await.unwrap();
    let request = RevokeRequest { member: "goes".into() };
    post(&since, Caller::Local, "/v1/revoke", &request).await.result::<Value>().unwrap();
    let last = newest(&since);
    let cached = mesh.dir.path().join("cached");
    fs::write(&cached, &*since.roster().borrow().clone()).unwrap();
    let config = thalweg_oracle::Config { cached: Some(cached), ..mesh.config() };
    let restored = Oracle::open(&backup, mesh.founder.node.id(), config).await.unwrap();
    assert_eq!(newest(&restored).members, last.members);
    assert!(newest(&restored).version > last.version);
    let is_restored = |e: &Event| matches!(e, Event::Restored { .. });
    assert!(mesh.events.lock().unwrap().iter().any(is_restored));
}

#[tokio::test]
async fn a_node_missing_from_the_mesh_is_reported_with_advice() {
    let mesh = Mesh::found().await;
    let other = Host::new("fra");
    let error = Oracle::open(&mesh.path(), other.node.id(), mesh.config()).await.unwrap_err();
    assert!(matches!(error, OracleError::OtherNode { .. }), "{error}");
    assert!(error.to_string().contains("node.key"), "{error}");
}

#[tokio::test]
async fn a_copy_of_another_mesh_is_ignored() {
    let (mesh, other) = (Mesh::found().await, Mesh::found().await);
    other.hand.forward(Duration::from_secs(3600));
    other.joined("evil").await;
    let last = mesh.newest();
    for bytes in [fs::read(other.path().join("roster")).unwrap(), b"nothing".to_vec()] {
        fs::write(mesh.path().join("roster"), bytes).unwrap();
        let opened = mesh.open().await.unwrap();
        assert_eq!(newest(&opened).members, last.members);
        let ignored = |e: &Event| matches!(e, Event::CopyIgnored(_));
        assert!(mesh.events.lock().unwrap().iter().any(ignored));
    }
    fs::copy(other.path().join("mesh.key"), mesh.path().join("mesh.key")).unwrap();
    let error = mesh.open().await.unwrap_err();
    assert!(matches!(error, OracleError::OtherMesh { .. }), "{error}");
}

#[tokio::test]
async fn a_new_signing_key_publishes_for_the_same_mesh() {
    let mesh = Mesh::found().await;
    mesh.joined("ber").await;
    let (root, before) = (mesh.oracle.mesh(), mesh.newest());
    let rekeyed = thalweg_oracle::rekey(&mesh.path(), root, None, 0, mesh.hand.now()).unwrap();
    assert!(rekeyed.mesh == root && rekeyed.number > 1);
    let opened = mesh.open().await.unwrap();
    let after = newest(&opened);
    assert_eq!((opened.mesh(), &after.members), (root, &before.members));
    assert_eq!(after.signing_key(root), rekeyed.key);
    assert!(after.rank() > before.rank());
    // The oracle with the old key may go on reading, but not signing.
    let error = mesh.oracle.tick().await.unwrap_err();
    assert!(matches!(error, OracleError::ReplacedKey { own: 1, .. }), "{error}");
    let request = RevokeRequest { member: "ber".into() };
    let refused = post(&mesh.oracle, Caller::Local, "/v1/revoke", &request).await;
    assert!(refused.result::<Value>().is_err());
    assert_eq!(newest(&opened).members, before.members);
    // A member with a roster of the old key and a higher version gets the new one.
    let path = format!("/v1/roster?after={}&key=1", u64::MAX);
    assert_eq!(get(&opened, Caller::Local, &path).await.status, 200);
    let path = format!("/v1/roster?after={}&key={}", after.version, rekeyed.number);
    assert_eq!(get(&opened, Caller::Local, &path).await.status, 204);
}

/// The thief of the first signing key gives a roster the highest version, and it gets to the oracle's own host.
#[tokio::test]
async fn a_forged_roster_of_a_replaced_key_does_not_come_back() {
    let mesh = Mesh::found().await;
    let token = mesh.token().await;
    mesh.joined("ber").await;
    let before = mesh.newest();
    let text = fs::read_to_string(mesh.path().join("mesh.key")).unwrap();
    let stolen = PrivateKey::load(&mesh.path().join("mesh.key")).unwrap();
    assert_eq!(text.lines().count(), 2, "key and endorsement");
    let thief = Host::new("evil").member();
    let forged = Roster { version: u64::MAX, members: vec![thief], ..before.clone() };
    let forged = Signed::sign(forged, &stolen).encode();
    let cached = mesh.dir.path().join("cached");
    fs::write(&cached, &forged).unwrap();
    thalweg_oracle::rekey(&mesh.path(), mesh.oracle.mesh(), None, 0, mesh.hand.now()).unwrap();
    fs::write(mesh.path().join("roster"), &forged).unwrap();
    let config = thalweg_oracle::Config { cached: Some(cached), ..mesh.config() };
    let opened = Oracle::open(&mesh.path(), mesh.founder.node.id(), config).await.unwrap();
    assert_eq!(newest(&opened).members, before.members);
    assert!(newest(&opened).version < u64::MAX / 2, "versions begin anew");
    // The next changes are kept, and tokens of before are void.
    let request = RevokeRequest { member: "ber".into() };
    post(&opened, Caller::Local, "/v1/revoke", &request).await.result::<Value>().unwrap();
    assert_eq!(newest(&opened).members.len(), before.members.len() - 1);
    let ham = Host::new("ham");
    let request = ham.request(&token, mesh.hand.now());
    let joined = post(&opened, ham.caller(), "/v1/join", &request).await.result::<JoinReply>();
    assert_eq!(joined.unwrap_err().code, "token_unknown");
}

#[tokio::test]
async fn a_mesh_is_founded_only_once_and_completely() {
    let mesh = Mesh::found().await;
    let before = newest(&mesh.open().await.unwrap());
    let again = Oracle::create(&mesh.path(), Host::new("x").member(), mesh.config()).await;
    assert!(matches!(again.unwrap_err(), OracleError::Exists(_)));
    assert_eq!(newest(&mesh.open().await.unwrap()).members, before.members);
    // The remains of an interrupted start are no obstacle.
    let dir = mesh.dir.path().join("two");
    fs::create_dir(dir.with_extension("new")).unwrap();
    fs::write(dir.with_extension("new").join("mesh.key"), "half").unwrap();
    let two = Oracle::create(&dir, Host::new("x").member(), mesh.config()).await.unwrap();
    assert_ne!(two.mesh(), mesh.oracle.mesh());
    let missing = mesh.open_in(&mesh.dir.path().join("three")).await;
    assert!(matches!(missing.unwrap_err(), OracleError::Missing(_)));
}

#[tokio::test]
async fn files_are_readable_only_by_their_owner() {
    let mesh = Mesh::found().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&mesh.path()), 0o700);
    for entry in fs::read_dir(mesh.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}
