//! What a download observed of its paths.

use super::Ranged;
use crate::worker::HEAD;
use std::time::Duration;
use thalweg_measure::Bound;
use thalweg_paths::history::PathObservation;
use thalweg_units::{ByteSize, PathId, Rate, Time};

impl Ranged<'_, '_> {
    /// Records the results at the end of the download.
    pub(super) fn record_observations(&mut self) {
        let end = match self.complete {
            Some(t) => Time::ZERO + t.duration_since(self.epoch),
            None => self.now(),
        };
        self.close_phases(end);
        self.run.observed = self.paths.all().filter_map(|p| self.observed(p, end)).collect();
        self.paths.all().for_each(|p| self.meter.lost(p));
        self.meter.charge(&self.run.request.budget);
        self.meter.tell_totals(self.run.sink);
        self.run.fetched += self.meter.fetched;
        self.run.waits.add(self.meter.waits);
        self.run.last_byte = self.complete;
    }

    /// Records the rates of the two phases. Wall-clock time counts, from the opening of the part; a failover counts as
    /// completion.
    fn close_phases(&mut self, end: Time) {
        let (turn, sampled) = self.turns.unwrap_or((end, self.meter.fetched));
        self.run.phases.sampling = rate(sampled, turn.since(Time::ZERO));
        self.run.phases.completion = rate(self.meter.fetched - sampled, end.since(turn));
    }

    /// The observation of one path, if it was used: the rate by which the selection judges it, or, for the path chosen
    /// last, its rate since then if it delivered most of its bytes in that time. Only the latter is the path's full
    /// rate. The others were observed in sampling, where the paths compete on the access link, so the rate is a lower
    /// bound ([`Bound::AtLeast`]).
    fn observed(&self, path: PathId, end: Time) -> Option<PathObservation> {
        let useful = self.meter.useful_of(path);
        let carried = self.chosen.filter(|(chosen, ..)| *chosen == path).and_then(|(_, t, n)| {
            let since = useful - n;
            (since >= HEAD.max(useful / 2)).then(|| rate(since, end.since(t))).flatten()
        });
        let alone = self.run.request.selection.lanes <= 1;
        let rate = carried.or_else(|| self.selection.rate(path, end));
        Some(PathObservation {
            path: self.paths.name(path).to_owned(),
            rate: rate.filter(|r| *r > Rate::ZERO)?,
            setup: self.setups.get(path.0 as usize).copied().flatten()?,
            bound: if alone && carried.is_some() {
                self.bound(useful, end)
            } else {
                Bound::AtLeast
            },
        })
    }

    /// How exact the rate is. The path did not limit the transfer if the rate limit or the disk held it back for a
    /// tenth of its time, or if the transfer ended before slow start did.
    fn bound(&self, useful: u64, end: Time) -> Bound {
        let held_back = self.brake.total * 10 > end.since(Time::ZERO);
        let limited = held_back || useful <= HEAD.max(self.run.request.selection.small);
        if limited { Bound::AtLeast } else { Bound::Exact }
    }
}

fn rate(n: u64, took: Duration) -> Option<Rate> {
    (!took.is_zero() && n > 0).then(|| Rate::over(ByteSize::from_bytes(n), took))
}
