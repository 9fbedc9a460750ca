//! A database that fails while the mesh is measured: measuring does not wait for it.

use crate::{
    fake::{Fake, rate, settings},
    harness::{IMPATIENT, get},
};
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{fs, os::unix::fs::FileExt as _, time::Duration};
use tempfile::TempDir;
use thalweg_oracle::{Config, Event, MeasureEvent, Oracle};
use thalweg_wire::{Signer as _, mesh::measure::PathsReply};

/// A mesh of four nodes, of which three have measured each other; the fourth starts after the database has failed.
async fn measured(dir: TempDir) -> Fake {
    let mesh = Fake::start_in(dir, 4, settings(), IMPATIENT).await;
    mesh.work(0..3, u64::MAX, rate);
    mesh.until("three", |p| p.legs.len() == 6).await;
    mesh
}

async fn another_program(mesh: &Fake) -> SqliteConnection {
    let file = mesh.dir.path().join("oracle/oracle.db");
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(file)).await.unwrap()
}

fn event_text(mesh: &Fake, which: impl Fn(&MeasureEvent) -> bool) -> Option<String> {
    let events = mesh.events.lock().unwrap();
    let found = events.iter().find(|e| matches!(e, Event::Measuring(m) if which(m)));
    found.map(ToString::to_string)
}

async fn until_event(mesh: &Fake, which: impl Fn(&MeasureEvent) -> bool) -> String {
    let wait = async {
        loop {
            if let Some(text) = event_text(mesh, &which) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), wait).await;
    waited.unwrap_or_else(|_| panic!("never told; {:?}", mesh.events.lock().unwrap()))
}

/// Asserts that orders, reports, candidates, paths and the roster still work, and that an event gives the reason
/// `says`.
async fn assert_measuring_continues(mesh: &Fake, says: &str) {
    mesh.work(3..4, u64::MAX, rate);
    mesh.until("the fourth as well", |p| p.legs.len() == 12).await;
    let why = until_event(mesh, |e| matches!(e, MeasureEvent::Unkept(_))).await;
    assert!(why.contains(says) && why.contains("measuring continues"), "{why}");
    while mesh.candidates(1, "strategy=oblivious&m=9").await.measured != 12 {
        tokio::task::yield_now().await;
    }
    assert_eq!(mesh.candidates(1, "strategy=oblivious&m=9").await.candidates.len(), 3);
    let roster = get(&mesh.oracle, mesh.caller(2), "/v1/roster?after=0").await;
    assert_eq!(roster.status, 200, "what downloads go by");
}

/// The number of stored measurements, read by another program.
async fn rows(mesh: &Fake) -> i64 {
    let mut other = another_program(mesh).await;
    let count = sqlx::query_scalar("SELECT COUNT(*) FROM measurements").fetch_one(&mut other).await;
    other.close().await.unwrap();
    count.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_database_delays_nothing_and_gets_all_entries_later() {
    let mesh = measured(tempfile::tempdir().unwrap()).await;
    let mut other = another_program(&mesh).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    assert_measuring_continues(&mesh, "locked by another program").await;
    assert!(
        until_event(&mesh, |e| matches!(e, MeasureEvent::Unkept(_))).await.contains("end that")
    );
    other.execute("COMMIT").await.unwrap();
    other.close().await.unwrap();
    let kept = until_event(&mesh, |e| matches!(e, MeasureEvent::Kept { .. })).await;
    assert!(kept.contains("none was lost"), "{kept}");
    while rows(&mesh).await < 12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_delays_nothing_and_is_reported_with_advice() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: no file system can be mounted here (needs root)");
        return;
    };
    let mesh = measured(tempfile::tempdir_in(disk.0.path()).unwrap()).await;
    let filler = disk.0.path().join("filler");
    let full = fs::File::create(&filler).unwrap();
    let mut at = 0;
    while full.write_at(&[1; 4096], at).is_ok_and(|n| n > 0) {
        at += 4096;
    }
    assert_measuring_continues(&mesh, "free space").await;
    drop(full);
    fs::remove_file(&filler).unwrap();
    let kept = until_event(&mesh, |e| matches!(e, MeasureEvent::Kept { .. })).await;
    assert!(kept.contains("none was lost"), "{kept}");
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_delays_nothing_and_is_reported_with_advice() {
    let mesh = measured(tempfile::tempdir().unwrap()).await;
    for name in ["oracle.db", "oracle.db-wal"] {
        let file = mesh.dir.path().join("oracle").join(name);
        let opened = fs::OpenOptions::new().write(true).open(file).unwrap();
        let length = opened.metadata().unwrap().len();
        opened.write_all_at(&vec![0x5a; length as usize], 0).unwrap();
    }
    assert_measuring_continues(&mesh, "Restore it from a backup").await;
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_oracle_leaves_one_complete_file() {
    for _ in 0..5 {
        let mesh = measured(tempfile::tempdir().unwrap()).await;
        // At an arbitrary moment.
        mesh.work(3..4, u64::MAX, rate);
        let dir = mesh.dir.path().to_owned();
        let beside = |name: &str| dir.join("oracle").join(name).exists();
        let kept = mesh.end().await;
        assert!(beside("oracle.db") && !beside("oracle.db-wal") && !beside("oracle.db-shm"));
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measurements_keep_their_age_over_a_restart() {
    let mesh = measured(tempfile::tempdir().unwrap()).await;
    while rows(&mesh).await < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (node, hand, caller) = (mesh.hosts[0].node.id(), mesh.hand.clone(), mesh.caller(0));
    let dir = mesh.end().await;
    let day = Duration::from_secs(24 * 3600);
    hand.forward(day);
    let config = Config { clock: hand.clock(), measure: settings(), ..Config::default() };
    let oracle = Oracle::open(&dir.path().join("oracle"), node, config).await.unwrap();
    let running = oracle.clone();
    let runs = tokio::spawn(async move { running.run(std::future::pending()).await });
    let wait = async {
        loop {
            let paths: PathsReply = get(&oracle, caller, "/v1/paths").await.result().unwrap();
            if paths.legs.len() == 6 {
                return paths;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let paths = tokio::time::timeout(Duration::from_secs(120), wait).await.unwrap();
    let ages: Vec<_> = paths.legs.iter().map(|leg| leg.age).collect();
    assert!(ages.iter().all(|age| (day..2 * day).contains(age)), "{ages:?}");
    runs.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_measurements_are_compacted_when_an_oracle_starts() {
    let mesh = measured(tempfile::tempdir().unwrap()).await;
    while rows(&mesh).await < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (node, hand) = (mesh.hosts[0].node.id(), mesh.hand.clone());
    let dir = mesh.end().await;
    hand.forward(Duration::from_secs(4 * 24 * 3600));
    let config = Config { clock: hand.clock(), measure: settings(), ..Config::default() };
    let oracle = Oracle::open(&dir.path().join("oracle"), node, config).await.unwrap();
    let runs = tokio::spawn(async move { oracle.run(std::future::pending()).await });
    let file = SqliteConnectOptions::new().filename(dir.path().join("oracle/oracle.db"));
    let mut other = SqliteConnection::connect_with(&file).await.unwrap();
    let wait = async {
        loop {
            let asked = "SELECT (SELECT COUNT(*) FROM measurements), COUNT(*) FROM summaries";
            let now: (i64, i64) = sqlx::query_as(asked).fetch_one(&mut other).await.unwrap();
            if now == (0, 6) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.unwrap();
    runs.abort();
}

/// A file system of 4 MiB in memory.
struct SmallDisk(TempDir);

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
