//! Any tree, sent in any order and with any interruptions, ends as the same tree.

use super::*;
use proptest::prelude::*;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{collections::BTreeMap, fs, time::Duration};
use thalweg_files::inventory::Piece;
use thalweg_part::Batch;

/// A session: how much of the missing data arrives (in 1/8), and how it ends.
#[derive(Clone, Debug)]
struct Session {
    eighths: u64,
    finishes: bool,
}

fn session() -> impl Strategy<Value = Session> {
    (0_u64..9, any::<bool>()).prop_map(|(eighths, finishes)| Session { eighths, finishes })
}

/// Paths of up to three components with few names, so that they overlap.
fn tree() -> impl Strategy<Value = BTreeMap<String, u64>> {
    let size = prop_oneof![
        3 => 0_u64..3,
        6 => 1_u64..5000,
        1 => (1_u64 << 20)..(1 << 20) + 2,
        1 => (1_u64 << 20) + 2..(1 << 20) + 300_000,
    ];
    let path = prop::collection::vec("[abc]", 1..4).prop_map(|parts| parts.join("/"));
    prop::collection::btree_map(path, size, 0..14)
}

/// Files of the tree without a file above them, and the directories above them.
fn entries(tree: &BTreeMap<String, u64>) -> Vec<Entry> {
    let above = |path: &str| -> Vec<String> {
        path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect()
    };
    let files = tree.iter().filter(|(path, _)| !above(path).iter().any(|a| tree.contains_key(a)));
    let mut entries = BTreeMap::new();
    for (path, size) in files {
        above(path).into_iter().for_each(|a| _ = entries.insert(a.clone(), directory(&a)));
        // Some are links.
        let entry = if *size == 2 { link(path, "a/b") } else { file(path, *size) };
        entries.insert(path.clone(), entry);
    }
    entries.into_values().collect()
}

fn pieces(inventory: &Inventory, random: &mut Xoshiro256PlusPlus) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (file, wanted) in (0..).zip(&inventory.files) {
        for range in &wanted.missing {
            let mut at = range.start;
            while at < range.end {
                let most = if random.next_u64().is_multiple_of(4) { 1000 } else { 400_000 };
                let end = (at + 1 + random.next_u64() % most).min(range.end);
                pieces.push(Piece { file: FileNo(file), range: at..end });
                at = end;
            }
        }
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, (random.next_u64() % (i as u64 + 1)) as usize);
    }
    pieces
}

fn assert_landed(arena: &Arena, entries: &[Entry]) {
    for entry in entries {
        match &entry.kind {
            Kind::File { .. } => arena.assert_file(entry),
            _ => arena.assert_attributes(entry),
        }
    }
    assert_eq!(arena.names().len(), entries.len(), "nothing else: {:?}", arena.names());
}

/// Checks that each file has either all of its bytes or its earlier content.
fn assert_no_half(arena: &Arena, entries: &[Entry], before: &BTreeMap<String, Vec<u8>>) {
    for entry in entries {
        let Kind::File { snapshot } = entry.kind else { continue };
        let name = std::str::from_utf8(entry.path.as_bytes()).unwrap();
        let Ok(found) = fs::read(arena.path(name)) else { continue };
        let whole = found.len() as u64 == snapshot.size;
        let old = before.get(name).is_some_and(|old| *old == found);
        assert!(whole || old, "{name} is shown with {} bytes of {}", found.len(), snapshot.size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn any_tree_sent_in_any_order_with_crashes_ends_complete(
        tree in tree(),
        sessions in prop::collection::vec(session(), 0..4),
        seed: u64,
        old in prop::collection::btree_map("[abc]", 0_usize..50, 0..3),
    ) {
        let arena = Arena::new();
        let entries = entries(&tree);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        fs::create_dir_all(arena.path("")).unwrap();
        let is_file = |name: &str| tree.get(name).is_some_and(|size| *size != 2);
        let old: BTreeMap<String, Vec<u8>> =
            old.into_iter().filter(|(n, _)| is_file(n)).map(|(n, l)| (n, vec![1; l])).collect();
        old.iter().for_each(|(name, bytes)| fs::write(arena.path(name), bytes).unwrap());
        let last = Session { eighths: 8, finishes: true };
        let mut left = u64::MAX;
        for Session { eighths, finishes } in sessions.into_iter().chain([last]) {
            let checkpoint = Batch { bytes: 100_000, time: Duration::ZERO };
            let opened = arena.open_with(entries.clone(), Options { checkpoint, ..options() });
            let (landing, inventory) = opened.unwrap();
            let missing = inventory.amounts(1)[0];
            prop_assert!(missing <= left, "{missing} bytes after {left}");
            left = missing;
            let pieces = pieces(&inventory, &mut random);
            let number = pieces.len() * eighths as usize / 8;
            wait(async {
                for piece in pieces.into_iter().take(number) {
                    send(&landing, &inventory, piece).await;
                }
                if finishes {
                    let report = landing.finish().await;
                    assert!(report.failed.is_empty() && report.stopped.is_none(), "{report:?}");
                }
            });
            drop(landing);
            assert_no_half(&arena, &entries, &old);
        }
        assert_landed(&arena, &entries);
        let (_, inventory) = arena.open(entries.clone()).unwrap();
        prop_assert_eq!(inventory.files.len(), 0, "nothing is sent again");
    }
}
