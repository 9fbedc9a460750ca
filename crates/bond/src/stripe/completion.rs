//! Ours: each chunk goes where it arrives first, and waits for the better link where that pays.
//!
//! Two known rules decide whether a slower link is used while the best one is full. *Earliest
//! completion first* (Lim et al. 2017): not if the best one would bring all that waits before the
//! slower one brings this chunk. *Blocking estimation* (Ferlin et al. 2016): not if meanwhile the
//! best one would send more than the far end's window still takes, and so be stopped by the chunk
//! that is missing.

use super::{Link, Load, Verdict};

/// A wait that has begun is not given up for so little (β of Lim et al.).
const STAY: f64 = 0.25;

pub(super) fn next(links: &[Link], load: Load) -> Verdict {
    let soonest = |links: &mut dyn Iterator<Item = &Link>| {
        let at = |link: &Link| link.completion(load.chunk);
        links.min_by(|a, b| at(a).total_cmp(&at(b)).then(a.id.cmp(&b.id))).copied()
    };
    let Some(best) = soonest(&mut links.iter().filter(|link| link.usable)) else {
        return Verdict::Nobody;
    };
    if best.writable {
        return Verdict::Send(best.id);
    }
    let mut ready = links.iter().filter(|link| link.usable && link.writable);
    match soonest(&mut ready) {
        None => Verdict::Full,
        Some(slower) if pays(&best, &slower, load) => Verdict::Wait,
        Some(slower) => Verdict::Send(slower.id),
    }
}

/// Whether to wait for the best link.
fn pays(best: &Link, slower: &Link, load: Load) -> bool {
    let arrives = slower.completion(load.chunk);
    let patience = if load.waits { 1.0 + STAY } else { 1.0 };
    let brings_all_before = best.completion(load.backlog) < arrives * patience;
    // Until the slower one's chunk is there, and the far end's word of it is back here.
    let meanwhile = best.pace() * (arrives - best.one_way()).max(0.0) + load.chunk as f64;
    brings_all_before || meanwhile > load.window as f64
}
