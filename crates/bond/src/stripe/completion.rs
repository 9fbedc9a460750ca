//! Our own scheduler: each chunk goes to the link on which it arrives first, and waits for a better link if that pays.
//!
//! Two known rules decide whether a slower link is used while the best one is full. *Earliest completion first* (Lim et
//! al. 2017): not if the best link would deliver everything that waits before the slower one delivers this chunk.
//! *Blocking estimation* (Ferlin et al. 2016): not if the best link would meanwhile send more than the far end's window
//! still accepts, and so be blocked by the chunk that is missing.

use super::{Link, Load, Verdict};

/// A wait that has begun goes on unless the slower link is better by more than this share (β of Lim et al.).
const HYSTERESIS: f64 = 0.25;

pub(super) fn next(links: &[Link], load: Load) -> Verdict {
    let soonest = |links: &mut dyn Iterator<Item = &Link>| {
        let at = |link: &Link| link.completion(load.chunk);
        links.min_by(|a, b| at(a).total_cmp(&at(b)).then(a.id.cmp(&b.id))).copied()
    };
    let Some(best) = soonest(&mut links.iter().filter(|link| link.usable)) else {
        return Verdict::NoLink;
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

/// Whether it pays to wait for the best link.
fn pays(best: &Link, slower: &Link, load: Load) -> bool {
    let arrives = slower.completion(load.chunk);
    let patience = if load.waits { 1.0 + HYSTERESIS } else { 1.0 };
    let brings_all_before = best.completion(load.backlog) < arrives * patience;
    // Bytes that the best link delivers before the slower link's chunk arrives, and that chunk.
    let meanwhile = best.pace() * (arrives - best.one_way()).max(0.0) + load.chunk as f64;
    brings_all_before || meanwhile > load.window as f64
}
