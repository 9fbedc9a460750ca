//! Tests of pushes over an in-memory connection, with simulated time.

use super::{Push, Spool};
use crate::BoxFiles;
use std::{io, sync::Arc, time::Duration};
use tempfile::TempDir;
use thalweg_base::message;
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        CommitmentHasher, MAX_SUBMIT_REPLY, Nonce, ReceiptDelivery, Refusal, Stamp, StampId,
        SubmitReply,
    },
};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::sleep,
};

const MAX_TOTAL: u64 = 10_000_000;

/// A node's spool, and the key of a client.
pub struct Scene {
    dir: TempDir,
    pub spool: Arc<Spool>,
    pub key: PrivateKey,
}

impl Scene {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let spool = Arc::new(Self::open(&dir));
        Self { dir, spool, key: PrivateKey::from_seed(&[2; 32]) }
    }

    fn open(dir: &TempDir) -> Spool {
        let name = "taxes".parse().unwrap();
        let files = BoxFiles::new(dir.path(), &name, None).create().unwrap();
        let key = Arc::new(PrivateKey::from_seed(&[1; 32]));
        Spool::open(files, key, "n1".parse().unwrap(), MAX_TOTAL).unwrap()
    }

    /// A stamp as the destination would give it.
    pub fn stamp(&self, data: &[u8]) -> Signed<Stamp> {
        let mut committing = CommitmentHasher::new(&nonce(), &self.key.id());
        committing.update(data);
        let date = WallTime::from_unix_nanos(1);
        let stamp = Stamp {
            drop_box: "taxes".parse().unwrap(),
            number: 1,
            client: self.key.id(),
            label: "a".parse().unwrap(),
            commitment: committing.finish(),
            time: date,
            until: date,
        };
        Signed::sign(stamp, &PrivateKey::from_seed(&[3; 32]))
    }

    /// Begins a push. Returns the client's end, the first answer, and the node's task.
    pub async fn push(
        &self,
        stamp: &Signed<Stamp>,
    ) -> (DuplexStream, SubmitReply, JoinHandle<io::Result<()>>) {
        let (mut client, mut node) = duplex(64 * 1024);
        let (spool, stamp) = (self.spool.clone(), stamp.clone());
        let push = Push { stamp, nonce: nonce() };
        let ended = tokio::spawn(async move { super::push(&spool, &mut node, push).await });
        let answer = message::read(&mut client, MAX_SUBMIT_REPLY).await.unwrap().unwrap();
        (client, answer, ended)
    }

    pub fn kept(&self, stamp: &Signed<Stamp>) -> u64 {
        let part = self.spool.files.part_path(&StampId::from_stamp(stamp));
        std::fs::metadata(part).map_or(0, |found| found.len())
    }
}

fn nonce() -> Nonce {
    Nonce::from_bytes([5; 32])
}

/// Sends this many bytes each second, until all are sent or the node closes the connection.
async fn drip(client: &mut DuplexStream, data: &[u8], each_second: usize) {
    for some in data.chunks(each_second) {
        if client.write_all(some).await.is_err() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_at_ten_kilobytes_a_second_arrives() {
    let scene = Scene::new();
    // More data than a buffer of the node holds; it takes longer than the node's limit of silence.
    let data: Vec<u8> = (0..1_500_000_u32).map(|n| (n / 7) as u8).collect();
    let stamp = scene.stamp(&data);
    let (mut client, answer, ended) = scene.push(&stamp).await;
    assert_eq!(answer, SubmitReply::From(0));
    drip(&mut client, &data, 10_000).await;
    let answer = message::read::<SubmitReply>(&mut client, MAX_SUBMIT_REPLY).await.unwrap();
    assert!(matches!(answer, Some(SubmitReply::Receipt(_))), "{answer:?}");
    ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_resumes_at_its_last_byte() {
    let scene = Scene::new();
    let data = vec![7; 100_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    client.write_all(&data[..30_001]).await.unwrap();
    // The connection stays open, as with a host that lost power.
    let error = ended.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert_eq!(scene.kept(&stamp), 30_001);
    let (mut client, answer, ended) = scene.push(&stamp).await;
    assert_eq!(answer, SubmitReply::From(30_001));
    client.write_all(&data[30_001..]).await.unwrap();
    let answer = message::read::<SubmitReply>(&mut client, MAX_SUBMIT_REPLY).await.unwrap();
    assert!(matches!(answer, Some(SubmitReply::Receipt(_))), "{answer:?}");
    ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_too_slow_push_is_ended_and_keeps_its_data() {
    let scene = Scene::new();
    let data = vec![7; 100_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    drip(&mut client, &data, 100).await;
    let error = ended.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
    let kept = scene.kept(&stamp);
    assert!((11_000..=13_000).contains(&kept), "{kept} bytes of 100 B/s in two minutes");
    assert_eq!(scene.push(&stamp).await.1, SubmitReply::From(kept));
}

#[tokio::test(start_paused = true)]
async fn slow_data_is_written_soon() {
    let scene = Scene::new();
    let data = vec![7; 1_000_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    drip(&mut client, &data[..50_000], 5_000).await;
    // Ten seconds of data; the node ends now, as by a loss of power.
    ended.abort();
    assert!(ended.await.unwrap_err().is_cancelled());
    assert!(scene.kept(&stamp) >= 25_000, "{}", scene.kept(&stamp));
}

fn id(n: u8) -> StampId {
    StampId::from_encoded(&[n])
}

fn client(n: u8) -> NodeId {
    PrivateKey::from_seed(&[n; 32]).id()
}

#[tokio::test(start_paused = true)]
async fn parts_occupy_space_that_only_their_push_may_use() {
    let scene = Scene::new();
    let data = vec![7; 100_000];
    let stamp = scene.stamp(&data);
    let (mut broken, _, ended) = scene.push(&stamp).await;
    broken.write_all(&data[..30_000]).await.unwrap();
    drop(broken);
    ended.await.unwrap().unwrap_err();
    let check = |spool: &Spool| {
        let others = MAX_TOTAL - 30_000;
        assert_eq!(
            spool.admit(id(1), client(1), others + 1).unwrap_err(),
            Refusal::NoRoom(others + 1)
        );
        drop(spool.admit(id(1), client(1), others).unwrap());
        let own = StampId::from_stamp(&stamp);
        assert_eq!(
            spool.admit(own, client(1), MAX_TOTAL + 1).unwrap_err(),
            Refusal::NoRoom(MAX_TOTAL + 1)
        );
        drop(spool.admit(own, client(1), MAX_TOTAL).unwrap());
        assert_eq!(spool.load().room, MAX_TOTAL, "for whoever comes back");
    };
    check(&scene.spool);
    // A restarted node finds the same state.
    let again = Scene::open(&scene.dir);
    check(&again);
    // The push is resumed and completed: the data is stored, and counted once.
    let (mut client_s, _, ended) = scene.push(&stamp).await;
    client_s.write_all(&data[30_000..]).await.unwrap();
    ended.await.unwrap().unwrap();
    assert_eq!(scene.spool.load().room, MAX_TOTAL - 100_000);
}

#[test]
fn two_pushes_never_take_the_same_room() {
    let scene = Scene::new();
    let threads = 8;
    let barrier = std::sync::Barrier::new(threads);
    for round in 0..100 {
        let begin = |n: u8| {
            barrier.wait();
            let turn = scene.spool.admit(id(n), client(n), MAX_TOTAL / 2 + 1);
            // No push ends before all have begun.
            barrier.wait();
            turn.is_ok()
        };
        let taken: usize = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads as u8).map(|n| scope.spawn(move || begin(n))).collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(taken, 1, "round {round}");
    }
}

#[test]
fn disk_space_is_reserved_once() {
    let mut scene = Scene::new();
    Arc::get_mut(&mut scene.spool).unwrap().free = |_| 1000;
    let spool = &scene.spool;
    let first = spool.admit(id(1), client(1), 600).unwrap();
    // The disk still reports 1000 free bytes, because nothing of the first push is written.
    assert_eq!(spool.admit(id(2), client(2), 600).unwrap_err(), Refusal::NoRoom(600));
    drop(spool.admit(id(2), client(2), 400).unwrap());
    // Written data is already included in the disk's report.
    first.record_written(600);
    drop(spool.admit(id(2), client(2), 600).unwrap());
}

#[tokio::test]
async fn data_that_cannot_be_deleted_stays_listed_and_is_retried() {
    let scene = Scene::new();
    let spool = &scene.spool;
    let mut ids = Vec::new();
    for n in [1, 2] {
        let delivery = ReceiptDelivery {
            stamp: vec![n],
            receipt: Vec::new(),
            nonce: nonce(),
            path: Vec::new(),
        };
        spool.sign_receipt(delivery, 10).await.unwrap();
        ids.push(id(n));
    }
    // A directory in place of the file makes the deletion fail.
    std::fs::create_dir_all(spool.files.data_path(&ids[0])).unwrap();
    let refused = spool.delete(ids.clone()).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Unable(why) if why.contains("remove")), "{refused}");
    assert_eq!((spool.counts().held, spool.counts().gone), (1, 1));
    std::fs::remove_dir(spool.files.data_path(&ids[0])).unwrap();
    assert_eq!(spool.delete(ids).await, Ok(1));
    assert_eq!((spool.counts().held, spool.counts().gone), (0, 2));
}
