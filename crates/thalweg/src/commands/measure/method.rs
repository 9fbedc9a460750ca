//! The methods of measuring, and their tools.

use super::Args;
use std::time::Duration;
use thalweg_measure::estimators::{
    Badabing, BadabingSettings, Dispersion, DispersionSettings, Ends, Estimator, FixedTrains, Hops,
    HopsSettings, PK1, PK2, PK3, Pace,
};

/// The probability that badabing probes a slot.
const SLOT_PROBABILITY: f64 = 0.3;

/// The share of the allowed time given to tools that use all of it; the rest is for the last train to arrive.
const TIME_SHARE: f64 = 0.9;

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Available bandwidth as a range: accurate, takes a while
    #[value(alias = "pathload")]
    PathloadFast,
    /// The same with long pauses between trains, which take a tenth of the rate on average
    PathloadSlow,
    /// Available bandwidth by trains of rising rate: less traffic, less accurate
    Pathchirp,
    /// The narrowest link's rate by packet pairs, and the rate at which trains arrive
    #[value(alias = "dispersion")]
    Capacity,
    /// Which link is the narrowest, by replies of routers (not with --back)
    Hops,
    /// How often packets are lost, and for how long each time
    Badabing,
    /// What one TCP connection moves now; the only one for members that are reached through relays
    Tcp,
    /// Load: bursts of ten probes at 12 Mbit/s, on average 1.1 Mbit/s; reports loss
    Pk1,
    /// Load: trains of twenty probes at 4 Mbit/s, on average 2 Mbit/s; reports loss
    Pk2,
    /// Load: bursts of ten probes back to back, on average 2.3 Mbit/s; reports loss
    Pk3,
}

/// Creates the tool of the method; `None` if it needs no trains.
pub fn tool(args: &Args, ends: &Ends) -> Option<Box<dyn Estimator>> {
    let Ends { rtt, largest, overhead, .. } = *ends;
    let lasts = args.within.mul_f64(TIME_SHARE);
    Some(match args.method {
        Method::Tcp => return None,
        Method::PathloadFast => Box::new(ends.pathload(Pace::Fast, true)),
        Method::PathloadSlow => Box::new(ends.pathload(Pace::Slow, true)),
        Method::Pathchirp => Box::new(ends.pathchirp(true)),
        Method::Capacity => {
            Box::new(Dispersion::new(DispersionSettings::new(largest, overhead, rtt)))
        }
        Method::Hops => Box::new(Hops::new(HopsSettings::new(largest, overhead))),
        Method::Badabing => {
            let seed = u64::from(std::process::id());
            let of = BadabingSettings::new(SLOT_PROBABILITY, lasts, seed);
            Box::new(Badabing::new(BadabingSettings { overhead, ..of }))
        }
        Method::Pk1 => Box::new(for_as_long(PK1.with_overhead(overhead), lasts)),
        Method::Pk2 => Box::new(for_as_long(PK2.with_overhead(overhead), lasts)),
        Method::Pk3 => Box::new(for_as_long(PK3.with_overhead(overhead), lasts)),
    })
}

fn for_as_long(of: FixedTrains, lasts: Duration) -> FixedTrains {
    let one = of.period().as_secs_f64().max(1e-6);
    of.with_trains((lasts.as_secs_f64() / one).ceil() as u32)
}
