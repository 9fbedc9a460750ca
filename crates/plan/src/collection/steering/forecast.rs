//! When who would end, if the ways that are open stay.
//!
//! Ways share the destination's access as TCP does, each as much as the others but for those that
//! something else slows; who is done leaves its share to the others. So a source that is slow
//! now may still be in time: nobody has to fight for an access that is full anyway.

use super::{Steering, WayId};

/// The ends of the sources, s from now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Forecast {
    /// By participant; 0: nothing to wait for. Infinite: never.
    pub(super) ends: Vec<f64>,
}

impl Forecast {
    /// When the last one ends, s.
    pub(super) fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

impl Steering {
    /// The ends, if this way were closed now.
    pub(super) fn forecast(&self, without: Option<WayId>) -> Forecast {
        let (into, _) = self.legs.host_limits(self.destination);
        let open = self.open.iter().filter(|open| Some(open.id) != without);
        let mut ways: Vec<(u32, f64)> = open.map(|open| (open.way.source, open.alone)).collect();
        let mut left: Vec<f64> = self.remaining.iter().map(|bytes| *bytes as f64).collect();
        let mut ends: Vec<f64> =
            left.iter().map(|left| if *left > 0.0 { f64::INFINITY } else { 0.0 }).collect();
        for (source, lost) in self.lost.iter().enumerate().filter(|(_, lost)| **lost) {
            ends[source] = if *lost { 0.0 } else { ends[source] };
        }
        let mut now = 0.0;
        while !ways.is_empty() {
            let rates = shares(&ways, into, left.len());
            let next = ways.iter().map(|way| way.0 as usize);
            let end = |source: usize| left[source] / rates[source].max(1e-9);
            let Some(first) = next.min_by(|a, b| end(*a).total_cmp(&end(*b))) else { break };
            let pass = end(first);
            now += pass;
            left.iter_mut().zip(&rates).for_each(|(left, rate)| *left -= rate * pass);
            ends[first] = now;
            ways.retain(|way| way.0 as usize != first);
        }
        Forecast { ends }
    }

    /// No ways at all let everything come sooner, s: the destination's access is full all the time.
    pub(super) fn floor(&self) -> f64 {
        let (into, _) = self.legs.host_limits(self.destination);
        let waiting = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        waiting.map(|source| self.remaining[source as usize] as f64).sum::<f64>() / into
    }
}

/// The sources' rates: max-min fair over an access, each way at most what it carries alone.
fn shares(ways: &[(u32, f64)], access: f64, sources: usize) -> Vec<f64> {
    let mut rates = vec![0.0; sources];
    let mut sorted: Vec<&(u32, f64)> = ways.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut left, mut count) = (access, sorted.len() as f64);
    for (source, alone) in sorted {
        let rate = alone.min(left / count);
        rates[*source as usize] += rate;
        left -= rate;
        count -= 1.0;
    }
    rates
}
