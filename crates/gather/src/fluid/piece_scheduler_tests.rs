//! All bytes arrive even if paths leave and requests are copied.

use super::{
    meter::PathMeter,
    piece_scheduler::{PieceFate, PieceScheduler, RequestNo},
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thalweg_files::inventory::{FileNo, Inventory, MissingFile, Piece};
use thalweg_plan::collection::steering::WayId;
use thalweg_wire::object::{FilePath, FileRef, Snapshot};

fn wanted(source: u32, size: u64) -> MissingFile {
    let snapshot = Snapshot { device: 1, inode: 1, size, modified_ns: 0, changed_ns: 0 };
    let path = FilePath::new(b"a".to_vec()).unwrap();
    let file = FileRef { root: b"/data".to_vec(), path, snapshot };
    MissingFile { source, file, missing: std::iter::once(0..size).collect() }
}

fn scheduler(sizes: &[(u32, u64)]) -> PieceScheduler {
    let files = sizes.iter().map(|(source, size)| wanted(*source, *size)).collect();
    PieceScheduler::new(Arc::new(Inventory { files }))
}

fn meter(rate: f64) -> Arc<PathMeter> {
    let meter = PathMeter::default();
    meter.see(rate);
    Arc::new(meter)
}

/// The requests of each path.
type Held = BTreeMap<WayId, Vec<(RequestNo, Vec<Piece>)>>;

proptest! {
    #[test]
    fn every_byte_arrives_and_no_request_stays_out(
        sizes in prop::collection::vec((0_u32..2, 0_u64..60), 1..8),
        steps in prop::collection::vec((0_u32..4, 0_u8..4, 1_u64..40), 0..60),
    ) {
        let mut scheduler = scheduler(&sizes);
        let mut held = Held::new();
        let mut came = vec![BTreeSet::new(); sizes.len()];
        let ends = (0..400).flat_map(|_| (0..4).flat_map(|way| [(way, 0, 50), (way, 2, 0)]));
        for (way, what, most) in steps.into_iter().chain(ends) {
            let id = WayId(way);
            scheduler.join(id, way % 2, 0.5, meter(f64::from(way / 2 * 999 + 1)));
            let own = held.entry(id).or_default();
            match what {
                0 => own.extend(scheduler.take(id, most).or_else(|| scheduler.copy(id))),
                1 => {
                    scheduler.leave(id);
                    own.clear();
                }
                2 if !own.is_empty() => {
                    let (number, pieces) = own.remove(0);
                    for piece in &pieces {
                        came[piece.file.0 as usize].extend(piece.range.clone());
                    }
                    scheduler.settle(id, number, pieces.into_iter().map(|p| (p, PieceFate::Arrived)));
                }
                3 if !own.is_empty() => {
                    let (number, pieces) = own.remove(0);
                    scheduler.settle(id, number, pieces.into_iter().map(|p| (p, PieceFate::Retry)));
                }
                _ => {}
            }
        }
        for source in 0..2 {
            prop_assert_eq!(scheduler.remaining(source), 0);
        }
        for (file, (_, size)) in sizes.iter().enumerate() {
            prop_assert_eq!(came[file].len() as u64, *size);
        }
    }
}

#[test]
fn a_fast_idle_path_copies_the_last_request_of_a_slow_one() {
    let mut scheduler = scheduler(&[(0, 3_000)]);
    let (slow, quick) = (WayId(0), WayId(1));
    scheduler.join(slow, 0, 0.5, meter(100.0));
    let first = scheduler.take(slow, 1_000).unwrap();
    let last = scheduler.take(slow, 2_000).unwrap();
    scheduler.join(quick, 0, 0.5, meter(10_000.0));
    assert_eq!(scheduler.take(quick, 1_000), None);
    assert_eq!(scheduler.copy(quick), Some(last.clone()), "it would come in 30 s");
    assert_eq!(scheduler.copy(quick), Some(first.clone()));
    assert_eq!(scheduler.copy(quick), None, "twice is enough");
    let came = |request: &(RequestNo, Vec<Piece>)| {
        request.1.iter().map(|piece| (piece.clone(), PieceFate::Arrived)).collect::<Vec<_>>()
    };
    scheduler.settle(quick, last.0, came(&last));
    scheduler.leave(slow);
    assert_eq!(
        (scheduler.remaining(0), scheduler.waiting(0)),
        (1_000, 0),
        "the quick one has it still"
    );
    scheduler.settle(quick, first.0, came(&first));
    assert_eq!(scheduler.remaining(0), 0);
}

#[test]
fn a_piece_that_a_copy_brought_first_is_no_longer_awaited() {
    let mut scheduler = scheduler(&[(0, 1_000)]);
    let (slow, quick) = (WayId(0), WayId(1));
    scheduler.join(slow, 0, 0.1, meter(10.0));
    let (number, pieces) = scheduler.take(slow, 1_000).unwrap();
    scheduler.join(quick, 0, 0.9, meter(10_000.0));
    assert_eq!((scheduler.share(slow), scheduler.share(quick)), (0.1, 0.9));
    scheduler.weigh(quick, 0.3);
    assert!((scheduler.share(quick) - 0.75).abs() < 1e-9, "a way that left has no share");
    assert_eq!(scheduler.copy(quick), Some((number, pieces.clone())));
    assert!(scheduler.awaits(number, &pieces[0]));
    scheduler.settle(quick, number, pieces.iter().map(|piece| (piece.clone(), PieceFate::Arrived)));
    assert!(!scheduler.awaits(number, &pieces[0]));
    scheduler.came_again(pieces[0].bytes());
    assert_eq!((scheduler.twice(), scheduler.remaining(0)), (1_000, 0));
}

#[test]
fn a_file_that_never_arrives_is_reported_once_and_counts_as_done() {
    let mut scheduler = scheduler(&[(0, 100), (0, 50)]);
    scheduler.join(WayId(0), 0, 0.5, meter(1.0));
    let (first, pieces) = scheduler.take(WayId(0), 30).unwrap();
    let (second, more) = scheduler.take(WayId(0), 30).unwrap();
    let never =
        |pieces: Vec<Piece>| pieces.into_iter().map(|piece| (piece, PieceFate::Unavailable));
    assert_eq!(scheduler.settle(WayId(0), first, never(pieces)), [FileNo(0)]);
    assert_eq!(scheduler.settle(WayId(0), second, never(more)), []);
    assert_eq!((scheduler.remaining(0), scheduler.waiting(0)), (50, 50));
}
