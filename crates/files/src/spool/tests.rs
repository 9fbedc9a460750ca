//! Tests of the spool on a real directory.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use thalweg_units::WallTime;
use thalweg_wire::object::{Reply, TransferHash, encode};

const OWNER: NodeId = NodeId::from_bytes([1; 32]);
const OTHER: NodeId = NodeId::from_bytes([2; 32]);
const JOB: JobId = JobId([3; 16]);

const fn id(number: u64) -> SpoolId {
    SpoolId { job: JOB, number }
}

fn check(bytes: &[u8]) -> TransferHash {
    TransferHash(*blake3::hash(bytes).as_bytes())
}

/// A clock that tests set, in seconds.
fn clock() -> (WallClock, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_000_000));
    let own = Arc::clone(&seconds);
    let now = move || WallTime::from_unix_nanos(own.load(Ordering::Relaxed) * 1_000_000_000);
    (WallClock::new(now), seconds)
}

fn open(dir: &TempDir, bound: u64, clock: &WallClock) -> Spool {
    Spool::open(dir.path(), ByteSize::from_bytes(bound), KeepFree::default(), clock.clone())
        .unwrap()
}

async fn fill(spool: &Spool, owner: NodeId, number: u64, parts: &[&[u8]]) {
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    let mut filling = spool.begin(owner, id(number), bytes, Vec::new()).unwrap();
    for part in parts {
        filling.push(part, Ok(check(part))).await.unwrap();
    }
    filling.finish().await.unwrap();
}

fn content(spool: &Spool, owner: NodeId, number: u64) -> Vec<u8> {
    reading::all(&mut spool.read(owner, id(number)).unwrap())
}

fn files(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path()).unwrap().count()
}

#[tokio::test]
async fn only_the_owner_reads_an_entry() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 10 << 20, &clock);
    let large = vec![7; 700_000];
    let mut filling = spool.begin(OWNER, id(1), 1_000_000, Vec::new()).unwrap();
    assert_eq!(spool.read(OWNER, id(1)).unwrap_err(), Failure::NoSpool, "it is not whole");
    filling.push(b"one", Ok(check(b"one"))).await.unwrap();
    // The bytes of a failed part are not kept.
    filling.push(&large, Err(Failure::Changed)).await.unwrap();
    filling.push(b"three", Ok(check(b"three"))).await.unwrap();
    let parts = filling.finish().await.unwrap();
    assert_eq!(parts, [Ok(check(b"one")), Err(Failure::Changed), Ok(check(b"three"))]);
    assert_eq!(content(&spool, OWNER, 1), b"onethree");
    assert_eq!(spool.read(OTHER, id(1)).unwrap_err(), Failure::NoSpool);
    assert_eq!(spool.peak(OWNER, JOB), 8);
    fill(&spool, OTHER, 1, &[&large]).await;
    assert_eq!(content(&spool, OTHER, 1), large);
    spool.forget(OWNER, &[id(1), id(2)]);
    assert_eq!(spool.read(OWNER, id(1)).unwrap_err(), Failure::NoSpool);
    spool.forget_job(OTHER, JOB);
    assert_eq!((spool.used(), files(&dir), spool.peak(OTHER, JOB)), (0, 0, 0));
}

#[tokio::test]
async fn the_spool_holds_no_more_than_its_bound() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 40_000, &clock);
    let mut first = spool.begin(OWNER, id(1), 10_000, Vec::new()).unwrap();
    assert!(spool.begin(OWNER, id(1), 1, Vec::new()).is_err(), "the name is taken");
    first.push(&[0; 10_000], Ok(check(&[0; 10_000]))).await.unwrap();
    let more = first.push(&[0], Ok(check(&[0]))).await;
    assert_eq!(more, Err(Failure::Full(1)), "more than was asked for");
    assert_eq!(spool.begin(OTHER, id(1), 10_000, Vec::new()).unwrap_err(), Failure::Full(10_000));
    drop(first);
    assert_eq!((spool.used(), files(&dir)), (0, 0), "what broke off takes no room");
    spool.begin(OTHER, id(1), 10_000, Vec::new()).unwrap();
}

#[tokio::test]
async fn no_owner_gets_more_than_it_leaves_free() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 400_000, &clock);
    assert_eq!(spool.begin(OWNER, id(1), 200_000, Vec::new()).unwrap_err(), Failure::Full(200_000));
    let mut all = Vec::new();
    // An announcement takes no room; only bytes that arrive do.
    for number in 0..10 {
        all.push(spool.begin(OWNER, id(number), 100_000, Vec::new()).unwrap());
    }
    let mut came = 0;
    for filling in &mut all {
        came += usize::from(filling.push(&[0; 50_000], Ok(check(&[0; 50_000]))).await.is_ok());
    }
    assert_eq!(came, 3);
    fill(&spool, OTHER, 1, &[&[1; 50_000]]).await;
    assert!(spool.used() < 400_000);
}

#[tokio::test]
async fn texts_of_failures_are_cut() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 10 << 20, &clock);
    let mut filling = spool.begin(OWNER, id(1), 0, Vec::new()).unwrap();
    for _ in 0..thalweg_wire::object::MAX_PARTS {
        let why = Failure::System("x".repeat(10_000));
        filling.push(&[], Err(why)).await.unwrap();
    }
    let parts = filling.finish().await.unwrap();
    let reply = Reply::Fetched { parts, micros: 0, most: 0, ticket: None };
    assert!(encode(&reply).len() < thalweg_wire::object::MAX_REPLY);
    assert_eq!(spool.read(OWNER, id(1)).unwrap().parts().len(), 16_384);
}

#[tokio::test]
async fn only_complete_entries_survive_a_crash() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 1 << 20, &clock);
    fill(&spool, OWNER, 1, &[b"kept", b"as well"]).await;
    fill(&spool, OWNER, 2, &[b"torn"]).await;
    let torn = spool.path(OWNER, id(2));
    File::options().write(true).open(torn).unwrap().set_len(40).unwrap();
    let mut half = spool.begin(OWNER, id(3), 1000, Vec::new()).unwrap();
    half.push(&[1; 1000], Ok(check(&[1; 1000]))).await.unwrap();
    // As after a kill: nothing is cleaned up.
    std::mem::forget(half);
    std::fs::write(dir.path().join("stray"), b"something").unwrap();
    assert_eq!(files(&dir), 4);
    let again = open(&dir, 1 << 20, &clock);
    assert_eq!(files(&dir), 1);
    assert_eq!(content(&again, OWNER, 1), b"keptas well");
    let length = std::fs::metadata(again.path(OWNER, id(1))).unwrap().len();
    assert_eq!(again.used(), length + 4096);
    assert_eq!(again.peak(OWNER, JOB), 11);
}

#[tokio::test]
async fn expired_entries_and_those_of_absent_owners_are_removed() {
    let (dir, (clock, seconds)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 1 << 20, &clock);
    let visit = spool.visit(OWNER);
    drop(spool.visit(OTHER));
    fill(&spool, OWNER, 1, &[b"one"]).await;
    fill(&spool, OTHER, 1, &[b"two"]).await;
    seconds.fetch_add(601, Ordering::Relaxed);
    spool.sweep();
    assert!(spool.read(OWNER, id(1)).is_ok() && spool.read(OTHER, id(1)).is_err());
    seconds.fetch_add(24 * 3600, Ordering::Relaxed);
    spool.sweep();
    assert_eq!((spool.used(), files(&dir)), (0, 0), "no transfer takes a day");
    drop(visit);
    fill(&spool, OWNER, 1, &[b"one"]).await;
    seconds.fetch_add(24 * 3600, Ordering::Relaxed);
    let again = open(&dir, 1 << 20, &clock);
    assert_eq!((again.used(), files(&dir)), (0, 0));
}

#[tokio::test]
async fn holdings_are_listed_page_by_page() {
    let (dir, (clock, _)) = (TempDir::new().unwrap(), clock());
    let spool = open(&dir, 20 << 20, &clock);
    let long = vec![b'n'; MAX_NOTE];
    let before = spool.used();
    assert!(spool.begin(OWNER, id(9), 1, vec![0; MAX_NOTE + 1]).is_err(), "too long a note");
    assert_eq!(spool.used(), before);
    for number in [u64::MAX, 7, 3, 0] {
        let mut filling = spool.begin(OWNER, id(number), 1, long.clone()).unwrap();
        assert!(spool.used() > before + MAX_NOTE as u64, "a note takes room");
        filling.push(b"x", Ok(check(b"x"))).await.unwrap();
        filling.finish().await.unwrap();
    }
    let half = spool.begin(OWNER, id(5), 1, Vec::new()).unwrap();
    fill(&spool, OTHER, 4, &[b"other"]).await;
    let spool = open(&dir, 20 << 20, &clock);
    drop(half);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = spool.holdings(OWNER, JOB, after);
        let Some(last) = page.last() else { break };
        after = Some(last.number);
        assert!(page.iter().all(|holding| holding.note == long));
        listed.extend(page.iter().map(|holding| holding.number));
        let reply = encode(&Reply::Holdings(page));
        assert!(reply.len() <= thalweg_wire::object::MAX_REPLY);
    }
    assert_eq!(listed, [0, 3, 7, u64::MAX]);
    assert_eq!(spool.holdings(OWNER, JobId([4; 16]), None), []);
}

#[test]
fn the_free_space_of_the_disk_is_kept() {
    let (clock, _) = clock();
    let dir = TempDir::new().unwrap();
    let all = KeepFree::Bytes(ByteSize::from_bytes(1 << 60));
    let spool = Spool::open(dir.path(), ByteSize::from_bytes(1 << 40), all, clock).unwrap();
    let refused = spool.begin(OWNER, id(1), 10, Vec::new()).map(drop).unwrap_err();
    assert_eq!(refused, Failure::Full(10));
    assert_eq!(spool.used(), 0);
}
