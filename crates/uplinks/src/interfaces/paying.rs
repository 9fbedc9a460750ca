//! What moves by interfaces is paid for: allotments of caps are taken, and rate limits are waited for.

use super::{NoMore, Uplinks, caps::May, kept::Kept, uplinks::TICK};
use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::token_bucket::Bucket;
use thalweg_net::pump::THROTTLED_TURN;
use thalweg_units::{ByteSize, Rate};
use tokio::{
    task::spawn_blocking,
    time::{sleep, sleep_until},
};

/// Rate limits at work, by name.
#[derive(Default)]
pub(super) struct Paces(Mutex<BTreeMap<String, Pacing>>);

struct Pacing {
    rate: Rate,
    bucket: Bucket,
    until: Instant,
}

impl Paces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Pacing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uplinks {
    /// Takes allotments of caps when they are wanted.
    pub(super) async fn allot(&self) {
        loop {
            let wish = self.table().wants_allotment(self.today());
            let Some((name, of)) = wish else {
                tokio::select! { () = self.0.wanted.notified() => {}, () = sleep(TICK) => {} }
                continue;
            };
            match self.0.file.clone() {
                None => self.table().allot_here(&name, &of),
                Some(file) => {
                    let (asked, at) = (name.clone(), file.clone());
                    let got = spawn_blocking(move || Kept::allot(&at, &asked, &of)).await;
                    let got = got.unwrap_or_else(|why| Err(io::Error::other(why)));
                    let got = got.map_err(|why| format!("{}: {why}", file.display()));
                    let is_answered = got.is_ok();
                    self.table().allotted(&name, &of, got);
                    self.0.granted.notify_waiters();
                    self.tell_of_account(&name);
                    if !is_answered {
                        sleep(TICK).await;
                    }
                }
            }
            self.0.granted.notify_waiters();
        }
    }

    /// Whether what goes by it can be counted is told when it changes.
    fn tell_of_account(&self, name: &str) {
        let fault = self.table().fault(name).map(str::to_owned);
        let what = format!("account {name}");
        match fault {
            Some(_) => self.0.faults.begins(&what, self.no_more(name).to_string()),
            None => self.0.faults.ends(&what),
        }
    }

    /// So many bytes went by an interface; they wait in [`Self::may`] for what they took too early.
    pub(super) fn charge(&self, name: &str, bytes: u64) {
        let policy = self.table().settings().policy(name);
        if policy.cap.is_some() {
            self.0.wanted.notify_one();
        }
        let mut buckets = self.0.paces.lock();
        let Some(rate) = policy.rate_limit else {
            buckets.remove(name);
            return;
        };
        let now = Instant::now();
        let new = || Pacing { rate, bucket: Bucket::new(rate, THROTTLED_TURN, now), until: now };
        let pacing = buckets.entry(name.to_owned()).or_insert_with(new);
        if pacing.rate != rate {
            pacing.rate = rate;
            pacing.bucket.set_rate(rate, now);
        }
        // A day is longer than anybody waits.
        let wait = pacing.bucket.take(bytes, now).min(Duration::from_secs(86_400));
        pacing.until = now + wait;
    }

    /// So many bytes more went by an interface, headers included, for its cap alone: what its rate limit goes by is
    /// charged as it is moved.
    pub(super) fn counted(&self, name: &str, bytes: u64) {
        if bytes > 0 {
            self.table().carried(name, bytes, self.today());
            self.charge(name, 0);
        }
    }

    /// Whether what moves by an interface has a cap or a limit to wait for.
    pub fn is_tolled(&self, name: &str) -> bool {
        let policy = self.table().settings().policy(name);
        policy.cap.is_some() || policy.rate_limit.is_some()
    }

    /// Why an interface may move nothing more, if so.
    pub fn is_over(&self, name: &str) -> Option<NoMore> {
        let is_over =
            self.is_tolled(name) && matches!(self.table().may(name), May::Over | May::Fault);
        is_over.then(|| self.no_more(name))
    }

    /// Waits until an interface may move more.
    ///
    /// # Errors
    /// Its cap is used up, or cannot be kept to.
    pub async fn may(&self, name: &str) -> Result<(), NoMore> {
        loop {
            let mut granted = std::pin::pin!(self.0.granted.notified());
            granted.as_mut().enable();
            let may = {
                let mut table = self.table();
                let may = table.may(name);
                if may == May::Wait {
                    table.await_more(name);
                }
                may
            };
            match may {
                May::Go => break,
                May::Over | May::Fault => return Err(self.no_more(name)),
                May::Wait => {
                    self.0.wanted.notify_one();
                    granted.await;
                }
            }
        }
        let until = {
            let buckets = self.0.paces.lock();
            buckets.get(name).map(|pacing| pacing.until)
        };
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until.into()).await;
        }
        Ok(())
    }

    /// Whether it may move more at once.
    pub(super) fn may_now(&self, name: &str) -> bool {
        let buckets = self.0.paces.lock();
        let is_paced = buckets.get(name).is_some_and(|pacing| pacing.until > Instant::now());
        drop(buckets);
        !is_paced && self.table().may(name) == May::Go
    }

    /// Why nothing more goes by it.
    pub(super) fn no_more(&self, name: &str) -> NoMore {
        let table = self.table();
        let cap = table.settings().policy(name).cap;
        let (bytes, reset_day) = cap.map_or((0, 1), |cap| (cap.bytes, cap.reset_day));
        let (interface, cap) = (name.to_owned(), ByteSize::from_bytes(bytes));
        match table.fault(name) {
            Some(why) => NoMore::Uncounted { interface, cap, why: why.to_owned() },
            None => NoMore::UsedUp { interface, cap, reset_day },
        }
    }
}
