//! Pushes over a connection in memory, in time that runs as fast as nothing happens.

use super::{Push, Spool};
use crate::BoxFiles;
use std::{io, sync::Arc, time::Duration};
use tempfile::TempDir;
use thalweg_base::message;
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Answer, Committing, Delivery, MAX_ANSWER, Nonce, Refusal, Stamp, StampId},
};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::sleep,
};

const MAX_TOTAL: u64 = 10_000_000;

/// A node's spool, and a client with data.
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

    /// What the destination would have stamped.
    pub fn stamp(&self, data: &[u8]) -> Signed<Stamp> {
        let mut committing = Committing::new(&nonce(), &self.key.id());
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

    /// Begins a push; the client's end, and what becomes of the node's.
    pub async fn push(
        &self,
        stamp: &Signed<Stamp>,
    ) -> (DuplexStream, Answer, JoinHandle<io::Result<()>>) {
        let (mut client, mut node) = duplex(64 * 1024);
        let (spool, stamp) = (self.spool.clone(), stamp.clone());
        let push = Push { stamp, nonce: nonce() };
        let ended = tokio::spawn(async move { super::push(&spool, &mut node, push).await });
        let answer = message::read(&mut client, MAX_ANSWER).await.unwrap().unwrap();
        (client, answer, ended)
    }

    pub fn kept(&self, stamp: &Signed<Stamp>) -> u64 {
        let part = self.spool.files.part_of(&StampId::of(stamp));
        std::fs::metadata(part).map_or(0, |found| found.len())
    }
}

fn nonce() -> Nonce {
    Nonce::from_bytes([5; 32])
}

/// Sends so many bytes each second, until all are sent or the node has gone.
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
    // More than a buffer of the node, which takes longer than its patience with silence.
    let data: Vec<u8> = (0..1_500_000_u32).map(|n| (n / 7) as u8).collect();
    let stamp = scene.stamp(&data);
    let (mut client, answer, ended) = scene.push(&stamp).await;
    assert_eq!(answer, Answer::From(0));
    drip(&mut client, &data, 10_000).await;
    let answer = message::read::<Answer>(&mut client, MAX_ANSWER).await.unwrap();
    assert!(matches!(answer, Some(Answer::Receipt(_))), "{answer:?}");
    ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_silent_goes_on_at_its_last_byte() {
    let scene = Scene::new();
    let data = vec![7; 100_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    client.write_all(&data[..30_001]).await.unwrap();
    // The connection stays open, as that of a host that lost its power.
    let error = ended.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert_eq!(scene.kept(&stamp), 30_001);
    let (mut client, answer, ended) = scene.push(&stamp).await;
    assert_eq!(answer, Answer::From(30_001));
    client.write_all(&data[30_001..]).await.unwrap();
    let answer = message::read::<Answer>(&mut client, MAX_ANSWER).await.unwrap();
    assert!(matches!(answer, Some(Answer::Receipt(_))), "{answer:?}");
    ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_only_drips_loses_the_place_and_no_byte() {
    let scene = Scene::new();
    let data = vec![7; 100_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    drip(&mut client, &data, 100).await;
    let error = ended.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
    let kept = scene.kept(&stamp);
    assert!((11_000..=13_000).contains(&kept), "{kept} bytes of 100 B/s in two minutes");
    assert_eq!(scene.push(&stamp).await.1, Answer::From(kept));
}

#[tokio::test(start_paused = true)]
async fn what_comes_slowly_is_soon_on_the_disk() {
    let scene = Scene::new();
    let data = vec![7; 1_000_000];
    let stamp = scene.stamp(&data);
    let (mut client, _, ended) = scene.push(&stamp).await;
    drip(&mut client, &data[..50_000], 5_000).await;
    // Ten seconds of it; the node ends now, as by a loss of power.
    ended.abort();
    assert!(ended.await.unwrap_err().is_cancelled());
    assert!(scene.kept(&stamp) >= 25_000, "{}", scene.kept(&stamp));
}

fn id(n: u8) -> StampId {
    StampId::of_bytes(&[n])
}

fn client(n: u8) -> NodeId {
    PrivateKey::from_seed(&[n; 32]).id()
}

#[tokio::test(start_paused = true)]
async fn what_a_push_has_left_behind_takes_room_that_only_it_may_use() {
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
            spool.begin(id(1), client(1), others + 1).unwrap_err(),
            Refusal::NoRoom(others + 1)
        );
        drop(spool.begin(id(1), client(1), others).unwrap());
        let own = StampId::of(&stamp);
        assert_eq!(
            spool.begin(own, client(1), MAX_TOTAL + 1).unwrap_err(),
            Refusal::NoRoom(MAX_TOTAL + 1)
        );
        drop(spool.begin(own, client(1), MAX_TOTAL).unwrap());
        assert_eq!(spool.load().room, MAX_TOTAL, "for whoever comes back");
    };
    check(&scene.spool);
    // A node that starts anew finds what is there.
    let again = Scene::open(&scene.dir);
    check(&again);
    // Gone on with, and complete: it is held, and counted once.
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
            let turn = scene.spool.begin(id(n), client(n), MAX_TOTAL / 2 + 1);
            // Nobody leaves before all have come.
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
fn room_on_the_disk_is_promised_once() {
    let mut scene = Scene::new();
    Arc::get_mut(&mut scene.spool).unwrap().free = |_| 1000;
    let spool = &scene.spool;
    let first = spool.begin(id(1), client(1), 600).unwrap();
    // The disk still says a thousand: nothing of the first is on it.
    assert_eq!(spool.begin(id(2), client(2), 600).unwrap_err(), Refusal::NoRoom(600));
    drop(spool.begin(id(2), client(2), 400).unwrap());
    // What is written, the disk counts itself.
    first.wrote(600);
    drop(spool.begin(id(2), client(2), 600).unwrap());
}

#[tokio::test]
async fn what_cannot_be_thrown_away_is_held_and_asked_for_again() {
    let scene = Scene::new();
    let spool = &scene.spool;
    let mut ids = Vec::new();
    for n in [1, 2] {
        let delivery =
            Delivery { stamp: vec![n], receipt: Vec::new(), nonce: nonce(), path: Vec::new() };
        spool.receive(delivery, 10).await.unwrap();
        ids.push(id(n));
    }
    // No file can be removed where a directory is.
    std::fs::create_dir_all(spool.files.of(&ids[0])).unwrap();
    let refused = spool.forget(ids.clone()).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Unable(why) if why.contains("remove")), "{refused}");
    assert_eq!((spool.counts().held, spool.counts().gone), (1, 1));
    std::fs::remove_dir(spool.files.of(&ids[0])).unwrap();
    assert_eq!(spool.forget(ids).await, Ok(1));
    assert_eq!((spool.counts().held, spool.counts().gone), (0, 2));
}
