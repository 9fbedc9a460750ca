//! Announces a parent's symbols to its child.

use super::{Say, Seat};
use crate::store::Store;
use std::{io, sync::Arc, time::Duration};
use thalweg_fountain::HaveSet;
use thalweg_wire::cast::{Frame, MAX_RANGES, Said};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

/// The minimum interval between announcements. Each hop of a chain adds it to the delay of the first byte.
const PAUSE: Duration = Duration::from_millis(10);

/// What was announced, and when the next announcement is due.
pub struct News {
    store: Arc<Store>,
    came: watch::Receiver<u64>,
    /// The child's seat while symbols are announced to it in parts, and a watch that tells when that ends.
    seat: Option<(Arc<Seat>, watch::Receiver<bool>)>,
    said: HaveSet,
    next: Instant,
}

impl News {
    /// Creates the state in which nothing has been announced.
    pub fn new(store: &Arc<Store>, seat: Option<Arc<Seat>>) -> Self {
        let over = |seat: Arc<Seat>| {
            let over = seat.over();
            (seat, over)
        };
        let said = HaveSet::empty(&store.known.geometry);
        let (store, came) = (Arc::clone(store), store.news());
        let mut news = Self { store, came, seat: seat.map(over), said, next: Instant::now() };
        news.came.mark_changed();
        news
    }

    /// Announces what is new, if an announcement is due.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn announce(&mut self, say: &mut Say) -> io::Result<()> {
        if let Some((seat, _)) = &self.seat {
            if let Some(told) = seat.announce() {
                let runs: Vec<_> = told.into_iter().map(|run| (run.start, run.end)).collect();
                return self.have(say, runs).await;
            }
            self.seat = None;
            self.next = Instant::now();
        }
        if Instant::now() < self.next || !self.came.has_changed().unwrap_or(false) {
            return Ok(());
        }
        self.came.mark_unchanged();
        self.next = Instant::now() + PAUSE;
        loop {
            let runs: Vec<(u64, u64)> = {
                let have = self.store.have();
                let beyond = have.difference(&self.said, 0).take(MAX_RANGES);
                beyond.map(|run| (run.start, run.end)).collect()
            };
            if runs.is_empty() {
                return Ok(());
            }
            self.have(say, runs).await?;
        }
    }

    async fn have(&mut self, say: &mut Say, runs: Vec<(u64, u64)>) -> io::Result<()> {
        runs.iter().for_each(|(from, to)| drop(self.said.insert_range(*from..*to)));
        for runs in runs.chunks(MAX_RANGES) {
            say.bytes(&Frame::message(&Said::Have(runs.to_vec()))).await?;
        }
        Ok(())
    }

    /// Waits until there may be something to announce, or the child requested something.
    ///
    /// # Errors
    /// The store has been dropped.
    pub async fn wait(&mut self, wished: &Notify) -> io::Result<()> {
        let Self { came, seat, next, .. } = self;
        if let Some((seat, over)) = seat {
            tokio::select! {
                () = wished.notified() => {}
                // The sender cannot be dropped: it is in the audience, which the seat holds.
                _ = over.changed() => {}
                () = sleep(seat.patience()) => seat.record_idle(),
            }
            return Ok(());
        }
        let due = async {
            let changed = came.changed().await;
            came.mark_changed();
            sleep_until(*next).await;
            changed.map_err(io::Error::other)
        };
        tokio::select! {
            () = wished.notified() => Ok(()),
            changed = due => changed,
        }
    }
}
