//! What the service does by itself.

use super::{
    MeasureEvent, Measuring,
    offer::Offer,
    ranked::{By, Picture, Ranked},
    settings::Order,
    state::State,
};
use crate::{Event, Oracle, election::Standing};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::spawn_blocking, time::sleep};

/// Between two looks if nothing happens: presence and deadlines are of seconds.
const LOOK: Duration = Duration::from_millis(500);

/// A ranking may take a part of the time between two: an eighth of one core.
const SHARE: u32 = 7;

/// A ranking is made anew after this time even if nothing changed: legs become too old.
const OLD: Duration = Duration::from_secs(3600);

/// After a ranking or an offer broke off, and between two lines about that.
const MEND: Duration = Duration::from_secs(60);

/// When the ranking and the offer were made.
struct Made {
    ranked: Option<Instant>,
    offered: Option<Instant>,
    /// How long the last ranking took, and the last offer.
    took: (Duration, Duration),
    /// When one of them broke off last, and when it was told of the assignment that it did.
    broken: Option<Instant>,
    unassigned: Option<Instant>,
}

/// Whether that is so long ago that it may be tried, or told of, again.
fn is_over(broken: Option<Instant>) -> bool {
    broken.is_none_or(|at| at.elapsed() >= MEND)
}

impl Oracle {
    /// Schedules, ranks, keeps the history; never ends.
    pub(crate) async fn measuring(&self) {
        tokio::join!(self.pulses(), self.keep_history(), self.follow_others(), self.compactions());
    }

    async fn pulses(&self) {
        let took = (Duration::ZERO, Duration::ZERO);
        let mut made = Made { ranked: None, offered: None, took, broken: None, unassigned: None };
        loop {
            self.pulse().await;
            let measuring = &self.inner.measuring;
            let broken = |what| self.tell(&Event::Measuring(MeasureEvent::Broken { what }));
            if is_over(made.broken)
                && let Err(what) = measuring.refresh(&mut made).await
            {
                made.broken = Some(Instant::now());
                broken(what);
            }
            if measuring.assigning.has_broken() && is_over(made.unassigned) {
                made.unassigned = Some(Instant::now());
                broken("assigning relays by their load");
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.inner.measuring.news.notified() => {}
            }
        }
    }

    /// One look: follows the roster, ends what has had its time, gives orders.
    async fn pulse(&self) {
        let measuring = &*self.inner.measuring;
        let (newest, standing) = (self.newest(), self.standing());
        let mut state = measuring.state.lock().await;
        let (now, pace) = (measuring.now(), measuring.config.pace);
        state.follow(&newest.roster, &self.inner.node, now.time);
        state.elect(
            match standing {
                Standing::Elected { term } if measuring.config.enabled => Some(term),
                _ => None,
            },
            now.time,
        );
        state.settle(now, &pace);
        if let Standing::Elected { .. } = standing {
            state.look(now, pace.silent);
        }
        if state.term.is_some() {
            state.schedule(now.time, pace.silent, pace.rest);
        }
        measuring.tally.table(state.known.table().len());
        let (batch, events) = state.take_news();
        drop(state);
        measuring.history.add(batch);
        events.into_iter().for_each(|event| self.tell(&Event::Measuring(event)));
    }
}

impl Measuring {
    /// Ranks anew, if there is something new and the last ranking was long enough ago; and
    /// offers anew.
    ///
    /// # Errors
    /// What panicked. All goes on with what was made before.
    async fn refresh(self: &Arc<Self>, made: &mut Made) -> Result<(), &'static str> {
        let least = self.config.pace.rank;
        let is_due = |last: Option<Instant>, took: Duration| {
            last.is_none_or(|last| last.elapsed() >= least.max(took * SHARE))
        };
        let offer = self.offer();
        let (changes, offered, version) = {
            let state = self.state.lock().await;
            (state.known.changes(), state.changes, state.nodes.version())
        };
        let is_old = made.ranked.is_some_and(|at| at.elapsed() >= OLD);
        let mut ranked = Arc::clone(&offer.ranked);
        let began = Instant::now();
        if (changes != ranked.changes || is_old) && is_due(made.ranked, made.took.0) {
            ranked = self.rank().await.ok_or("ranking the relays")?;
            made.took.0 = began.elapsed();
            self.tally.ranked(ranked.graph.measured(), made.took.0);
            made.ranked = Some(Instant::now());
        }
        let is_new = !Arc::ptr_eq(&ranked, &offer.ranked);
        let is_changed = offered != offer.changes && is_due(made.offered, made.took.1);
        if is_new || is_changed || version != offer.nodes.version() {
            let began = Instant::now();
            self.renew_offer(ranked).await.ok_or("making the list of candidates")?;
            (made.offered, made.took.1) = (Some(Instant::now()), began.elapsed());
        }
        Ok(())
    }

    async fn rank(self: &Arc<Self>) -> Option<Arc<Ranked>> {
        let this = Arc::clone(self);
        let work = spawn_blocking(move || this.rank_now());
        work.await.ok()
    }

    /// Ranks what is known. The table is locked while it is looked at, not while it is ranked.
    pub(super) fn rank_now(&self) -> Arc<Ranked> {
        let mut last = self.ranked.lock().unwrap_or_else(|broken| {
            // What changed before it broke is lost: all is ranked again.
            self.ranked.clear_poison();
            let mut last = broken.into_inner();
            *last = Arc::new(Ranked::nothing());
            last
        });
        let picture = {
            let mut state = self.state.blocking_lock();
            let State { known, planner, .. } = &mut *state;
            let picture = Picture::next(known, self.now().time);
            planner.renew(picture.graph(), &picture.changed);
            picture
        };
        let by = match self.config.schedule {
            Order::Thrifty => By::Completed,
            Order::Algorithm1 | Order::Random => By::Measured,
        };
        let ranked = Arc::new(picture.after(&last, by));
        self.state.blocking_lock().planner.ranked(&ranked.ranking);
        *last = Arc::clone(&ranked);
        ranked
    }

    async fn renew_offer(self: &Arc<Self>, ranked: Arc<Ranked>) -> Option<()> {
        let this = Arc::clone(self);
        let work = spawn_blocking(move || {
            let offer = {
                let state = this.state.blocking_lock();
                Arc::new(Offer::of(&state, ranked, this.now().time))
            };
            this.set_offer(Arc::clone(&offer));
            // If too many wait, the next one comes through.
            let _ = this.assigning.renew(offer);
        });
        work.await.ok()
    }
}
