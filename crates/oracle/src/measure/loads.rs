//! The load that relays report.

use super::nodes::Slot;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::assignment::RelayLoad;
use thalweg_units::{Rate, Time};
use thalweg_wire::mesh::measure::Load;

/// How long a report counts: four regular intervals.
const FRESH: Duration = Duration::from_secs(120);

/// A relay above this share of its limit is offered less, down to [`LEAST_WEIGHT`] at the limit.
const REDUCED_FROM: f64 = 0.7;
const LEAST_WEIGHT: f64 = 0.1;

/// The newest report of each relay and its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads(BTreeMap<Slot, (Load, Time)>);

impl Loads {
    /// Stores a report.
    ///
    /// # Errors
    /// A message about invalid numbers.
    pub fn report(&mut self, slot: Slot, load: Load, now: Time) -> Result<(), String> {
        super::verdict::check_rate("a load", load.bps)?;
        load.limit_bps.map_or(Ok(()), |limit| super::verdict::check_rate("a limit", limit))?;
        self.0.insert(slot, (load, now));
        Ok(())
    }

    /// Removes the reports of members that have left.
    pub fn forget(&mut self, slots: &[Slot]) {
        slots.iter().for_each(|slot| _ = self.0.remove(slot));
    }

    fn of(&self, slot: Slot, now: Time) -> Option<Load> {
        self.0.get(&slot).filter(|(_, at)| now.since(*at) < FRESH).map(|(load, _)| *load)
    }

    /// The load as a share of the limit, 0 to 1: the greater of bytes and sessions.
    pub fn share(&self, slot: Slot, now: Time) -> Option<f64> {
        let load = self.of(slot, now)?;
        let of = |part: f64, whole: f64| if whole > 0.0 { (part / whole).min(1.0) } else { 1.0 };
        let bytes = load.limit_bps.map(|limit| of(load.bps, limit));
        let sessions =
            (load.max_sessions > 0).then(|| of(load.sessions as f64, load.max_sessions as f64));
        [bytes, sessions].into_iter().flatten().reduce(f64::max)
    }

    /// The factor of the relay's score.
    pub fn weight(&self, slot: Slot, now: Time) -> f64 {
        self.share(slot, now).map_or(1.0, weight)
    }

    /// The load as input for the assignment.
    pub fn relay(&self, slot: Slot, now: Time) -> RelayLoad {
        let rate = |bps: f64| Rate::from_bps(bps as u64);
        let Some(load) = self.of(slot, now) else { return RelayLoad::default() };
        RelayLoad { used: rate(load.bps), limit: load.limit_bps.map(rate), assigned: 0 }
    }
}

fn weight(share: f64) -> f64 {
    (1.0 - (1.0 - LEAST_WEIGHT) * (share - REDUCED_FROM) / (1.0 - REDUCED_FROM))
        .clamp(LEAST_WEIGHT, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_near_its_limit_counts_for_less_and_an_old_report_for_nothing() {
        let (mut loads, now) = (Loads::default(), Time::from_nanos(1));
        let load = |bps, sessions| Load { bps, limit_bps: Some(1e9), sessions, max_sessions: 100 };
        let mut weight = |load| {
            loads.report(3, load, now).unwrap();
            (loads.share(3, now).unwrap(), loads.weight(3, now))
        };
        assert_eq!(weight(load(5e8, 10)), (0.5, 1.0));
        assert_eq!(weight(load(1e9, 10)), (1.0, LEAST_WEIGHT));
        assert_eq!(weight(load(2e9, 10)).0, 1.0);
        let (share, less) = weight(load(1e6, 85));
        assert!(share == 0.85 && (0.5..0.6).contains(&less), "{less}");
        assert_eq!(loads.weight(3, now + FRESH), 1.0);
        assert!(loads.report(3, load(f64::NAN, 0), now).is_err());
    }
}
