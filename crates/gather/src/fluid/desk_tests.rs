//! All bytes arrive even if paths leave and requests are copied.

use super::{
    desk::{Desk, Fate, ParcelNo},
    meter::Meter,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thalweg_files::inventory::{FileNo, Inventory, Piece, MissingFile};
use thalweg_plan::collection::steering::WayId;
use thalweg_wire::object::{FilePath, FileRef, Snapshot};

fn wanted(source: u32, size: u64) -> MissingFile {
    let snapshot = Snapshot { device: 1, inode: 1, size, modified_ns: 0, changed_ns: 0 };
    let path = FilePath::new(b"a".to_vec()).unwrap();
    let file = FileRef { root: b"/data".to_vec(), path, snapshot };
    MissingFile { source, file, missing: std::iter::once(0..size).collect() }
}

fn desk(sizes: &[(u32, u64)]) -> Desk {
    let files = sizes.iter().map(|(source, size)| wanted(*source, *size)).collect();
    Desk::new(Arc::new(Inventory { files }))
}

fn meter(rate: f64) -> Arc<Meter> {
    let meter = Meter::default();
    meter.see(rate);
    Arc::new(meter)
}

/// The requests of each path.
type Held = BTreeMap<WayId, Vec<(ParcelNo, Vec<Piece>)>>;

proptest! {
    #[test]
    fn every_byte_arrives_and_no_request_stays_out(
        sizes in prop::collection::vec((0_u32..2, 0_u64..60), 1..8),
        steps in prop::collection::vec((0_u32..4, 0_u8..4, 1_u64..40), 0..60),
    ) {
        let mut desk = desk(&sizes);
        let mut held = Held::new();
        let mut came = vec![BTreeSet::new(); sizes.len()];
        let ends = (0..400).flat_map(|_| (0..4).flat_map(|way| [(way, 0, 50), (way, 2, 0)]));
        for (way, what, most) in steps.into_iter().chain(ends) {
            let id = WayId(way);
            desk.join(id, way % 2, 0.5, meter(f64::from(way / 2 * 999 + 1)));
            let own = held.entry(id).or_default();
            match what {
                0 => own.extend(desk.take(id, most).or_else(|| desk.copy(id))),
                1 => {
                    desk.leave(id);
                    own.clear();
                }
                2 if !own.is_empty() => {
                    let (number, pieces) = own.remove(0);
                    for piece in &pieces {
                        came[piece.file.0 as usize].extend(piece.range.clone());
                    }
                    desk.settle(id, number, pieces.into_iter().map(|p| (p, Fate::Came)));
                }
                3 if !own.is_empty() => {
                    let (number, pieces) = own.remove(0);
                    desk.settle(id, number, pieces.into_iter().map(|p| (p, Fate::Again)));
                }
                _ => {}
            }
        }
        for source in 0..2 {
            prop_assert_eq!(desk.remaining(source), 0);
        }
        for (file, (_, size)) in sizes.iter().enumerate() {
            prop_assert_eq!(came[file].len() as u64, *size);
        }
    }
}

#[test]
fn a_fast_idle_path_copies_the_last_request_of_a_slow_one() {
    let mut desk = desk(&[(0, 3_000)]);
    let (slow, quick) = (WayId(0), WayId(1));
    desk.join(slow, 0, 0.5, meter(100.0));
    let first = desk.take(slow, 1_000).unwrap();
    let last = desk.take(slow, 2_000).unwrap();
    desk.join(quick, 0, 0.5, meter(10_000.0));
    assert_eq!(desk.take(quick, 1_000), None);
    assert_eq!(desk.copy(quick), Some(last.clone()), "it would come in 30 s");
    assert_eq!(desk.copy(quick), Some(first.clone()));
    assert_eq!(desk.copy(quick), None, "twice is enough");
    let came = |parcel: &(ParcelNo, Vec<Piece>)| {
        parcel.1.iter().map(|piece| (piece.clone(), Fate::Came)).collect::<Vec<_>>()
    };
    desk.settle(quick, last.0, came(&last));
    desk.leave(slow);
    assert_eq!((desk.remaining(0), desk.waiting(0)), (1_000, 0), "the quick one has it still");
    desk.settle(quick, first.0, came(&first));
    assert_eq!(desk.remaining(0), 0);
}

#[test]
fn a_piece_that_a_copy_brought_first_is_no_longer_awaited() {
    let mut desk = desk(&[(0, 1_000)]);
    let (slow, quick) = (WayId(0), WayId(1));
    desk.join(slow, 0, 0.1, meter(10.0));
    let (number, pieces) = desk.take(slow, 1_000).unwrap();
    desk.join(quick, 0, 0.9, meter(10_000.0));
    assert_eq!((desk.share(slow), desk.share(quick)), (0.1, 0.9));
    desk.weigh(quick, 0.3);
    assert!((desk.share(quick) - 0.75).abs() < 1e-9, "a way that left has no share");
    assert_eq!(desk.copy(quick), Some((number, pieces.clone())));
    assert!(desk.awaits(number, &pieces[0]));
    desk.settle(quick, number, pieces.iter().map(|piece| (piece.clone(), Fate::Came)));
    assert!(!desk.awaits(number, &pieces[0]));
    desk.came_again(pieces[0].bytes());
    assert_eq!((desk.twice(), desk.remaining(0)), (1_000, 0));
}

#[test]
fn a_file_that_never_arrives_is_reported_once_and_counts_as_done() {
    let mut desk = desk(&[(0, 100), (0, 50)]);
    desk.join(WayId(0), 0, 0.5, meter(1.0));
    let (first, pieces) = desk.take(WayId(0), 30).unwrap();
    let (second, more) = desk.take(WayId(0), 30).unwrap();
    let never = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| (piece, Fate::Never));
    assert_eq!(desk.settle(WayId(0), first, never(pieces)), [FileNo(0)]);
    assert_eq!(desk.settle(WayId(0), second, never(more)), []);
    assert_eq!((desk.remaining(0), desk.waiting(0)), (50, 50));
}
