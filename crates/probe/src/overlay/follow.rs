//! Links that are measured one time after the other, as long as somebody wants it: those that live streams use.

use super::probe::{Task, Unprobed, probe};
use crate::{
    prober::Prober,
    trains::{Payer, Trains},
};
use std::{collections::BTreeSet, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_measure::{estimators::Pace, overlay::How};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// After a measurement that found nothing.
const REST: Duration = Duration::from_secs(1);

/// The longest measurement: MGRP §4.2.1.
const LONGEST: Duration = Duration::from_secs(60);

/// How they are measured.
#[derive(Clone, Copy, Debug)]
pub struct FollowRun {
    /// The pauses between pathload's trains.
    pub pace: Pace,
    /// Whether packets ride in the trains.
    pub rides: bool,
}

/// What was found of a link.
#[derive(Clone, Debug)]
pub struct Followed {
    /// To whom it leads.
    pub to: Name,
    /// What is free there, bit/s.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// When it was begun.
    pub began: Instant,
    /// Bytes of its trains.
    pub bytes: u64,
}

/// Measures links that somebody wants to be known at any time.
#[derive(Clone, Debug)]
pub struct Follow {
    run: FollowRun,
    prober: Prober,
    trains: Trains,
    dialer: MemberDialer,
    log: Log,
}

impl Follow {
    /// Measures by these trains, and pays by this prober.
    pub fn new(
        run: FollowRun,
        prober: Prober,
        trains: Trains,
        dialer: MemberDialer,
        log: Log,
    ) -> Self {
        Self { run, prober, trains, dialer, log }
    }

    /// For ever, these links in turn; drop the future to end it.
    pub async fn run(self, mut wanted: watch::Receiver<BTreeSet<Name>>, told: impl Fn(Followed)) {
        let mut last: Option<Name> = None;
        loop {
            let next = after(&wanted.borrow_and_update(), last.as_ref());
            let Some(to) = next else {
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.measure(&to).await {
                Some(found) => told(found),
                None => sleep(REST).await,
            }
            last = Some(to);
        }
    }

    async fn measure(&self, to: &Name) -> Option<Followed> {
        let key = self.dialer.roster().ok()?.by_name(to)?.node?;
        let left = self.prober.purse().left();
        if left == ByteSize::ZERO {
            return None;
        }
        let payer = Payer::new(self.trains.clone(), key, self.prober.lane()).at_most(left);
        let how = if self.run.rides { How::Riding } else { How::Trains };
        let task = Task {
            to,
            how,
            pace: self.run.pace,
            longest: LONGEST,
            // What is wrong is put right by the stream's own legs within a second or two.
            accepts_busy: true,
            most: self.prober.max_rate(),
            payer,
        };
        let began = Instant::now();
        let (found, bytes) = probe(&self.dialer, &self.trains, task).await;
        self.tell(to, began, &found, bytes);
        let found = found.ok()?;
        let to = to.clone();
        Some(Followed { to, low: found.low, high: found.high, began, bytes })
    }

    fn tell(
        &self,
        to: &Name,
        began: Instant,
        found: &Result<thalweg_measure::estimators::Finding, Unprobed>,
        bytes: u64,
    ) {
        let event = Event::new("stream_measured").with("to", to).with_number("bytes", bytes);
        let event = event.with_number("ms", began.elapsed().as_millis());
        self.log.put(match found {
            Ok(found) => event
                .with_number("low_bps", found.low as u64)
                .with_number("high_bps", found.high as u64),
            Err(why) => event.with("why", why),
        });
    }
}

/// The next of them, in turn.
fn after(wanted: &BTreeSet<Name>, last: Option<&Name>) -> Option<Name> {
    let next = wanted.iter().find(|name| last.is_none_or(|last| *name > last));
    next.or_else(|| wanted.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_measured_in_turn() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let wanted: BTreeSet<Name> = ["a", "b", "c"].map(name).into();
        assert_eq!(after(&wanted, None), Some(name("a")));
        assert_eq!(after(&wanted, Some(&name("b"))), Some(name("c")));
        assert_eq!(after(&wanted, Some(&name("c"))), Some(name("a")));
        assert_eq!(after(&BTreeSet::new(), Some(&name("c"))), None);
    }
}
