//! Tests of creating, continuing and clearing jobs.

use super::{clear::clear_at, *};
use crate::source::event::{Event, EventSink as _, Outcome, Totals};
use std::{
    fs::FileTimes,
    sync::Arc,
    time::{Duration, SystemTime},
};
use thalweg_net::PrivateKey;
use thalweg_units::WallTime;
use thalweg_wire::{cast::Shape, manifest::ObjectId, object::FilePath};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn record(receivers: &[&str]) -> CastRecord {
    let offer = Offer {
        name: FilePath::new(b"image".to_vec()).unwrap(),
        object: ObjectId::from_bytes([1; 32]),
        length: 100,
        layout: [2; 32],
        layout_bytes: 40,
        shape: Shape { symbol_bytes: 1 << 14, block_symbols: 512, repair_symbols: 128 },
        open: true,
        created: WallTime::from_unix_nanos(5),
        expiry: WallTime::from_unix_nanos(6),
    };
    let offer = Signed::sign(offer, &PrivateKey::from_seed(&[1; 32]));
    let parts = receivers.iter().map(|text| (name(text), ReceiverPlan::default())).collect();
    CastRecord::begin(Path::new("/data/image"), &name("lab"), &offer, &parts)
}

fn received(receiver: &str) -> Event {
    Event::Received {
        receiver: name(receiver),
        already: false,
        received_bytes: 100,
        duplicate_bytes: 0,
        served_bytes: 0,
        parents: Vec::new(),
        seconds: 1.0,
        rate_bps: 800,
        after_seconds: 1.0,
    }
}

#[test]
fn a_job_outlives_its_process_and_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let first = JobRecorder::open(dir.path(), record(&["a", "b"]), Arc::new(())).unwrap();
    let job = list(dir.path())[0].record.job.clone();
    assert!(list(dir.path())[0].is_running);
    let again = JobRecorder::open(dir.path(), record(&["a", "b"]), Arc::new(()));
    assert!(matches!(again, Err(JobError::Running)));
    // Other receivers make another job.
    drop(JobRecorder::open(dir.path(), record(&["a", "c"]), Arc::new(())).unwrap());
    first.event(&received("a"));
    let why = "away".to_owned();
    first.event(&Event::Unreached { receiver: name("b"), why });
    // Like a killed process: the record has no end.
    drop(first);
    let found = list(dir.path());
    assert_eq!(found.len(), 2);
    let its =
        |found: &[ListedCast]| found.iter().find(|f| f.record.job.id == job.id).cloned().unwrap();
    let known = its(&found);
    assert_eq!((known.is_running, known.record.end), (false, None));
    assert!(known.record.receivers[&name("a")].is_complete);
    assert_eq!(known.record.receivers[&name("b")].why.as_deref(), Some("away"));
    assert_eq!(known.record.offer().unwrap().value().length, 100);

    let second = JobRecorder::open(dir.path(), record(&["a", "b"]), Arc::new(())).unwrap();
    let totals = Totals { outcome: Outcome::Complete, ..Totals::default() };
    second.event(&Event::Ended(totals));
    second.finish();
    let known = its(&list(dir.path()));
    assert_eq!((known.record.end, known.record.job), (Some(CastEnd::Complete), job));
}

#[test]
fn old_jobs_and_digests_are_removed_and_running_jobs_stay() {
    let dir = tempfile::tempdir().unwrap();
    let days = |n: u64| SystemTime::now() + Duration::from_secs(n * 24 * 3600);
    let keeper = JobRecorder::open(dir.path(), record(&["a"]), Arc::new(())).unwrap();
    for digests in ["x.pages", "x.known", "y.new-7", "y.new-8", "other"] {
        fs::write(dir.path().join(digests), "").unwrap();
    }
    let late = fs::File::options().write(true).open(dir.path().join("y.new-8")).unwrap();
    late.set_times(FileTimes::new().set_modified(days(8))).unwrap();
    clear_at(dir.path(), days(6));
    let is_there = |name: &str| dir.path().join(name).exists();
    assert!(is_there("x.pages") && is_there("x.known") && !is_there("y.new-7"));
    clear_at(dir.path(), days(8));
    assert!(!is_there("x.pages") && !is_there("x.known") && is_there("y.new-8"));
    clear_at(dir.path(), days(40));
    assert_eq!(list(dir.path()).len(), 1, "somebody works at it");
    drop(keeper);
    clear_at(dir.path(), days(8));
    assert_eq!(list(dir.path()).len(), 1, "it did not come to its end");
    clear_at(dir.path(), days(40));
    assert_eq!(list(dir.path()).len(), 0);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
}
