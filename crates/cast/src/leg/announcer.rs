//! Announces a parent's symbols to its child.

use super::{ChildAnnouncements, LegWriter};
use crate::store::Store;
use std::{io, sync::Arc, time::Duration};
use thalweg_fountain::HaveSet;
use thalweg_wire::cast::{Frame, MAX_RANGES, ParentMessage};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

/// The minimum interval between announcements. Each hop of a chain adds it to the delay of the first byte.
const PAUSE: Duration = Duration::from_millis(10);

/// What was announced, and when the next announcement is due.
pub struct Announcer {
    store: Arc<Store>,
    came: watch::Receiver<u64>,
    /// The child's announcements while symbols are announced to it in parts, and a watch that tells when that ends.
    announcements: Option<(Arc<ChildAnnouncements>, watch::Receiver<bool>)>,
    announced: HaveSet,
    next: Instant,
}

impl Announcer {
    /// Creates the state in which nothing has been announced.
    pub fn new(store: &Arc<Store>, announcements: Option<Arc<ChildAnnouncements>>) -> Self {
        let over = |announcements: Arc<ChildAnnouncements>| {
            let over = announcements.watch_end();
            (announcements, over)
        };
        let announced = HaveSet::empty(&store.known.geometry);
        let (store, came) = (Arc::clone(store), store.changes());
        let mut announcer = Self {
            store,
            came,
            announcements: announcements.map(over),
            announced,
            next: Instant::now(),
        };
        announcer.came.mark_changed();
        announcer
    }

    /// Announces what is new, if an announcement is due.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn announce(&mut self, writer: &mut LegWriter) -> io::Result<()> {
        if let Some((announcements, _)) = &self.announcements {
            if let Some(ranges) = announcements.announce() {
                let runs: Vec<_> = ranges.into_iter().map(|run| (run.start, run.end)).collect();
                return self.have(writer, runs).await;
            }
            self.announcements = None;
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
                let beyond = have.difference(&self.announced, 0).take(MAX_RANGES);
                beyond.map(|run| (run.start, run.end)).collect()
            };
            if runs.is_empty() {
                return Ok(());
            }
            self.have(writer, runs).await?;
        }
    }

    async fn have(&mut self, writer: &mut LegWriter, runs: Vec<(u64, u64)>) -> io::Result<()> {
        runs.iter().for_each(|(from, to)| drop(self.announced.insert_range(*from..*to)));
        for runs in runs.chunks(MAX_RANGES) {
            writer.write_bytes(&Frame::encode_message(&ParentMessage::Have(runs.to_vec()))).await?;
        }
        Ok(())
    }

    /// Waits until there may be something to announce, or the child requested something.
    ///
    /// # Errors
    /// The store has been dropped.
    pub async fn wait(&mut self, requested: &Notify) -> io::Result<()> {
        let Self { came, announcements, next, .. } = self;
        if let Some((announcements, over)) = announcements {
            tokio::select! {
                () = requested.notified() => {}
                // The sender cannot be dropped: `announcements` holds it.
                _ = over.changed() => {}
                () = sleep(announcements.patience()) => announcements.record_idle(),
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
            () = requested.notified() => Ok(()),
            changed = due => changed,
        }
    }
}
