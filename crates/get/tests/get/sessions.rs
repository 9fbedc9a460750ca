//! Tests of downloads that are interrupted and resumed.

use crate::{
    LENGTH, Trial,
    server::{HEAD, Server, Step, Version},
    until,
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use thalweg_base::job::Event;
use thalweg_get::{GetError, Stop, get};
use thalweg_part::{Batch, PartError};
use tokio::sync::watch;

/// A server whose first segment falls silent before byte `n` of the file.
async fn hangs_after(version: &Version, n: usize) -> Server {
    Server::start(version, move |ask, reply| {
        if ask.is_first_segment() {
            let start = ask.ranges.first().map_or(0, |r| r.start as usize);
            reply.after_bytes(n - start, Step::Hang);
        }
    })
    .await
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Makes every write be journaled at once.
fn journal_every_write(trial: &mut Trial) {
    trial.request.batch = Batch { bytes: 1, ..Batch::default() };
}

/// Runs until `n` bytes are durable, then stops the download.
async fn interrupt_at(trial: &Trial, n: u64) -> thalweg_get::GetFailed {
    let (wish, stop) = Stop::new();
    let journal = trial.dir.path().join(".file.bin.thalweg-journal");
    let watcher = async {
        let end = |line: &str| {
            let end = line.split_once("\"end\":")?.1;
            end.split(',').next()?.parse::<u64>().ok()
        };
        let reached = || {
            let text = std::fs::read_to_string(&journal).unwrap_or_default();
            text.lines().filter_map(end).any(|e| e >= n)
        };
        until(reached).await;
        wish.send_replace(true);
        std::future::pending::<()>().await
    };
    tokio::select! {
        result = get(trial.request.clone(), &trial.events, stop) => result.unwrap_err(),
        () = watcher => unreachable!(),
    }
}

#[tokio::test]
async fn an_interrupted_download_is_resumed_where_it_stopped() {
    let version = Version::new(1, LENGTH);
    let server = hangs_after(&version, 600_000).await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    let failed = interrupt_at(&trial, 600_000).await;
    assert!(matches!(failed.error, GetError::Interrupted));
    assert_eq!(failed.kept.as_bytes(), 600_000);
    assert!(!trial.target().exists());
    let before = server.segments().len();
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64 - 600_000);
    let again: Vec<_> = server.segments().split_off(before);
    assert!(again.iter().all(|r| !overlap(r, &(0..600_000))), "{again:?}");
    let resumed = |e: &Event| matches!(e, Event::Resumed { bytes: 600_000 });
    assert!(trial.told().iter().any(resumed));
}

#[tokio::test]
async fn a_file_that_changed_between_two_sessions_is_fetched_again() {
    let (old, new) = (Version::new(1, LENGTH), Version::new(2, LENGTH));
    let server = hangs_after(&old, 600_000).await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    interrupt_at(&trial, 600_000).await;
    server.publish(new.clone());
    let outcome = trial.gets(&new).await;
    // The first request was for the missing bytes, and was answered with those of the new file.
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64 + HEAD);
    assert_eq!(trial.restarts(), 1, "the user is told");
}

#[tokio::test]
async fn bytes_altered_on_the_disk_are_fetched_again() {
    let version = Version::new(1, LENGTH);
    let server = hangs_after(&version, 600_000).await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    interrupt_at(&trial, 600_000).await;
    let part = trial.dir.path().join(".file.bin.thalweg-part");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[300_000] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    trial.gets(&version).await;
}

#[tokio::test]
async fn without_a_validator_the_next_session_starts_again() {
    let version = Version::new(1, LENGTH).without_validator();
    let holds = Arc::new(AtomicBool::new(true));
    let is_held = Arc::clone(&holds);
    let server = Server::start(&version, move |ask, reply| {
        if !ask.is_probe() && is_held.load(Ordering::SeqCst) {
            let start = ask.ranges.first().map_or(0, |r| r.start as usize);
            reply.after_bytes(600_000_usize.saturating_sub(start), Step::Hang);
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    let (wish, stop) = Stop::new();
    let watcher = async {
        until(|| server.asks().iter().any(|ask| !ask.is_probe())).await;
        wish.send_replace(true);
        std::future::pending::<()>().await
    };
    tokio::select! {
        result = get(trial.request.clone(), &trial.events, stop) => drop(result.unwrap_err()),
        () = watcher => unreachable!(),
    }
    holds.store(false, Ordering::SeqCst);
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64);
}

#[tokio::test]
async fn a_complete_part_that_could_not_be_renamed_is_kept() {
    let version = Version::new(1, LENGTH);
    let (deliver, may_deliver) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| {
        reply.after = (!ask.is_probe()).then(|| may_deliver.clone());
    })
    .await;
    let trial = Trial::new(&server, &[]).in_segments();
    // A directory with the target's name appears meanwhile.
    let meddler = async {
        until(|| !server.segments().is_empty()).await;
        std::fs::create_dir(trial.target()).unwrap();
        deliver.send_replace(true);
    };
    let (result, ()) = tokio::join!(trial.run(), meddler);
    let failed = result.unwrap_err();
    assert!(failed.to_string().contains("cannot rename"), "{failed}");
    std::fs::remove_dir(trial.target()).unwrap();
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), 0);
}

#[tokio::test]
async fn a_directory_in_place_of_the_file_is_refused_and_no_bytes_are_lost() {
    let version = Version::new(1, LENGTH);
    let server = hangs_after(&version, 600_000).await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    interrupt_at(&trial, 600_000).await;
    std::fs::create_dir(trial.target()).unwrap();
    let failed = trial.run().await.unwrap_err();
    assert!(matches!(failed.error, GetError::Part(PartError::NotAFile { .. })), "{failed}");
    std::fs::remove_dir(trial.target()).unwrap();
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64 - 600_000);
}

#[tokio::test]
async fn two_downloads_to_one_file_cannot_run_at_once() {
    let version = Version::new(1, LENGTH);
    let server = hangs_after(&version, 600_000).await;
    let mut trial = Trial::new(&server, &[]);
    journal_every_write(&mut trial);
    let second = async {
        until(|| !server.segments().is_empty()).await;
        trial.run().await.unwrap_err()
    };
    let (_wish, stop) = Stop::new();
    let first = get(trial.request.clone(), &trial.events, stop);
    let refused = tokio::select! {
        _ = first => panic!("the server hangs: it cannot end"),
        refused = second => refused,
    };
    assert!(matches!(refused.error, GetError::Part(PartError::Busy(_))), "{refused}");
    assert!(refused.to_string().contains("another process"), "{refused}");
}
