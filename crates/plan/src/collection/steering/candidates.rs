//! The ways a source could use.

use super::Way;

/// All ways with at most so many intermediates, shorter ones first. At most [`MOST`].
pub(super) fn candidates(source: u32, relays: &[u32], longest: usize) -> Vec<Way> {
    let longest = if relays.contains(&source) { longest } else { 0 };
    let others: Vec<u32> = relays.iter().copied().filter(|node| *node != source).collect();
    let mut ways = vec![Way { source, via: Vec::new() }];
    let mut last = ways.clone();
    for _ in 0..longest {
        let longer = |way: &Way| {
            let free = others.iter().filter(|node| !way.via.contains(node));
            let with = |node: &u32| {
                let via = way.via.iter().copied().chain([*node]).collect();
                Way { source, via }
            };
            free.map(with).collect::<Vec<Way>>()
        };
        last = last.iter().flat_map(longer).take(MOST).collect();
        ways.extend(last.iter().cloned());
    }
    ways.truncate(MOST);
    ways
}

/// No more are looked at: in a mesh of 60 members all ways with two intermediates. The rest is
/// dropped.
const MOST: usize = 4_096;
