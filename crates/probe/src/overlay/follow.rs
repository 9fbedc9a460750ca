//! Links that are measured one time after the other, as long as somebody wants it: those that live streams use.

use super::probe::Unprobed;
use crate::{
    prober::Prober,
    trains::{Payer, Session, Trains, Way, open, run},
};
use std::{collections::BTreeMap, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_measure::{
    estimators::{Estimator, Finding, Pace, Quantity},
    train::sizes,
};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::Stream;
use thalweg_units::{ByteSize, NodeId};
use thalweg_wire::mesh::Name;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// After a measurement that found nothing.
const REST: Duration = Duration::from_secs(1);

/// After a rate that is not free.
const PAUSE: Duration = Duration::from_millis(400);

/// What rode in trains counts for the next ones by so much.
const KEPT: f64 = 0.7;

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

/// What is to be found out of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wish {
    /// What is free there.
    Range,
    /// Whether so many bit/s are.
    Fits(f64),
}

/// What was found of a link.
#[derive(Clone, Debug)]
pub struct Followed {
    /// To whom it leads.
    pub to: Name,
    /// What was asked.
    pub wish: Wish,
    /// What is free there, bit/s.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Whether more may be free.
    pub is_lower_bound: bool,
    /// When it was begun.
    pub began: Instant,
    /// Bytes of its trains.
    pub bytes: u64,
}

/// Links that are wanted to be known.
pub type Wishes = BTreeMap<Name, Wish>;

/// Measures links that somebody wants to be known at any time.
#[derive(Clone, Debug)]
pub struct Follow {
    run: FollowRun,
    prober: Prober,
    trains: Trains,
    dialer: MemberDialer,
    log: Log,
}

/// A session that is kept from one measurement to the next.
struct Open {
    to: Name,
    session: Session<Stream>,
    key: NodeId,
    largest: u16,
    /// What rode in the last trains, bit/s.
    hidden: f64,
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
    pub async fn run(self, mut wanted: watch::Receiver<Wishes>, told: impl Fn(Followed)) {
        let (mut last, mut open): (Option<Name>, Option<Open>) = (None, None);
        loop {
            let next = after(&wanted.borrow_and_update(), last.as_ref());
            let Some((to, wish)) = next else {
                if let Some(open) = open.take() {
                    open.session.close().await;
                }
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if open.as_ref().is_some_and(|open| open.to != to)
                && let Some(other) = open.take()
            {
                other.session.close().await;
            }
            match self.measure(&to, wish, open.take()).await {
                (Some(found), kept) => {
                    open = kept;
                    let is_free = found.is_lower_bound;
                    told(found);
                    // What is not free now is not a moment later either.
                    if matches!(wish, Wish::Fits(_)) && !is_free {
                        sleep(PAUSE).await;
                    }
                }
                (None, kept) => {
                    open = kept;
                    sleep(REST).await;
                }
            }
            last = Some(to);
        }
    }

    /// A session with the member.
    async fn open(&self, to: &Name) -> Result<Open, Unprobed> {
        let (mut session, key) = open(&self.trains, &self.dialer, to, self.run.rides).await?;
        // What is wrong is put right by the stream's own legs within a second or two.
        session.accept_busy(true);
        session.pay_by(self.payer(key));
        let largest = session.fitting(Way::There, &sizes(session.overhead())).await?;
        Ok(Open { to: to.clone(), session, key, largest, hidden: 0.0 })
    }

    fn payer(&self, key: NodeId) -> Payer {
        let left = self.prober.purse().left();
        Payer::new(self.trains.clone(), key, self.prober.lane()).at_most(left)
    }

    async fn measure(
        &self,
        to: &Name,
        wish: Wish,
        open: Option<Open>,
    ) -> (Option<Followed>, Option<Open>) {
        if self.prober.purse().left() == ByteSize::ZERO {
            return (None, open);
        }
        let began = Instant::now();
        let mut open = match open {
            Some(open) => open,
            None => match self.open(to).await {
                Ok(open) => open,
                Err(why) => {
                    self.tell(to, wish, began, &Err(why), 0);
                    return (None, None);
                }
            },
        };
        let payer = self.payer(open.key);
        open.session.pay_by(payer.clone());
        let found = self.ask(&mut open, wish).await;
        let bytes = payer.spent();
        self.tell(to, wish, began, &found, bytes);
        let Ok(found) = found else { return (None, None) };
        // Key frames come in bursts: what rode a moment ago may ride again.
        open.hidden = found.hidden.max(open.hidden * KEPT);
        let Finding { low, high, is_lower_bound, .. } = found;
        let to = to.clone();
        (Some(Followed { to, wish, low, high, is_lower_bound, began, bytes }), Some(open))
    }

    async fn ask(&self, open: &mut Open, wish: Wish) -> Result<Finding, Unprobed> {
        let mut ends = open.session.ends(Way::There, open.largest);
        if let Some(most) = self.prober.max_rate() {
            ends.sender.honest = ends.sender.honest.min(most);
        }
        let rides = self.run.rides;
        let mut tool: Box<dyn Estimator + Send> = match wish {
            Wish::Range => Box::new(ends.pathload(self.run.pace, rides)),
            // What rides in the trains will be taken off again.
            Wish::Fits(rate) => Box::new(ends.fits(rate + open.hidden, rides)),
        };
        let told = run(&mut open.session, tool.as_mut(), Way::There, LONGEST, &mut |_| {}).await?;
        let mut found = told.findings.into_iter();
        found.find(|f| f.of == Quantity::AvailableBandwidth).ok_or(Unprobed::Nothing)
    }

    fn tell(
        &self,
        to: &Name,
        wish: Wish,
        began: Instant,
        found: &Result<Finding, Unprobed>,
        bytes: u64,
    ) {
        let event = Event::new("stream_measured").with("to", to).with_number("bytes", bytes);
        let event = event.with_number("ms", began.elapsed().as_millis());
        let event = match wish {
            Wish::Range => event,
            Wish::Fits(rate) => event.with_number("asked_bps", rate as u64),
        };
        self.log.put(match found {
            Ok(found) => event
                .with_number("low_bps", found.low as u64)
                .with_number("high_bps", found.high as u64)
                .with_number("hidden_bps", found.hidden as u64),
            Err(why) => event.with("why", why),
        });
    }
}

/// The next of them, in turn.
fn after(wanted: &Wishes, last: Option<&Name>) -> Option<(Name, Wish)> {
    let next = wanted.iter().find(|(name, _)| last.is_none_or(|last| *name > last));
    let next = next.or_else(|| wanted.first_key_value());
    next.map(|(name, wish)| (name.clone(), *wish))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_measured_in_turn() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let wanted: Wishes = ["a", "b", "c"].map(|text| (name(text), Wish::Range)).into();
        let next = |last: Option<&str>| after(&wanted, last.map(name).as_ref()).unwrap().0;
        assert_eq!([next(None), next(Some("b")), next(Some("c"))], ["a", "c", "a"].map(name));
        assert_eq!(after(&Wishes::new(), Some(&name("c"))), None);
    }
}
