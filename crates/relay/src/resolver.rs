//! Who turns names into addresses for a relay.

use super::refusal::Refusal;
use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_net::Cause;
use thalweg_units::NodeId;
use thalweg_wire::{Destination, Host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Look-ups at a time: each holds a blocking thread, perhaps for half a minute. Half of the
/// daemon's 64, so that files and its own look-ups always find one.
const AT_ONCE: usize = 32;

/// Look-ups of one member at a time, waiting ones included: a web page has names of a
/// handful of hosts, and four members must agree to take all of [`AT_ONCE`].
const OF_ONE: usize = 8;

/// The answer to [`Resolver::resolve`].
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, Cause>> + Send + 'a>>;

/// Turns a destination into addresses.
///
/// A relay asks once for each name of a connection, checks every address of
/// the answer, and dials checked addresses alone: whatever is answered the
/// next time (DNS rebinding) changes nothing.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// All addresses of `host`, at least one; an address is its own answer.
    fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a>;
}

/// The system's resolver: `/etc/hosts`, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a> {
        Box::pin(thalweg_net::resolve(host))
    }
}

/// A resolver that members share: so many look-ups at a time, and so many of one member.
///
/// A look-up counts until it has really ended, also if nobody waits for it any more:
/// the system's cannot be broken off. Addresses are no look-ups. To be used within a
/// tokio runtime.
#[derive(Debug)]
pub struct SharedResolver {
    inner: Arc<dyn Resolver>,
    all: Arc<Semaphore>,
    /// Of those who have look-ups alone: at most [`OF_ONE`] for each session there is.
    members: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
}

/// Why a member's look-up is not even begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{OF_ONE} names at a time are a member's most; try again when one is resolved")]
pub struct TooManyNames;

impl SharedResolver {
    /// Asks `inner`.
    pub fn new(inner: Arc<dyn Resolver>) -> Self {
        let all = Arc::new(Semaphore::new(AT_ONCE));
        Self { inner, all, members: Mutex::default() }
    }

    /// As [`Resolver::resolve`], for the member with this principal key; waits while there
    /// are too many look-ups of others.
    ///
    /// # Errors
    /// [`Refusal::NoLeg`] with the resolver's; [`Refusal::Names`], at once.
    pub async fn resolve_for(
        &self,
        member: NodeId,
        host: &Destination,
    ) -> Result<Vec<SocketAddr>, Refusal> {
        let answer = match &host.host {
            Host::Ip(_) => self.inner.resolve(host).await,
            Host::Name(_) => {
                let share = self.share(member).ok_or(TooManyNames)?;
                self.ask(host, Some(share)).await
            }
        };
        answer.map_err(Refusal::NoLeg)
    }

    /// One of the member's look-ups; `None` if all are taken.
    fn share(&self, member: NodeId) -> Option<OwnedSemaphorePermit> {
        // A thread that panicked in here left whole entries.
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|_, places| places.available_permits() < OF_ONE);
        let places = members.entry(member).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE)));
        Arc::clone(places).try_acquire_owned().ok()
    }

    /// In a task of its own, which keeps the places until the look-up's end.
    async fn ask(
        &self,
        host: &Destination,
        share: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<SocketAddr>, Cause> {
        // It fails only when closed, which nobody does.
        let place = Arc::clone(&self.all).acquire_owned().await;
        let (inner, host) = (Arc::clone(&self.inner), host.clone());
        let looking = tokio::spawn(async move {
            let _places = (place, share);
            inner.resolve(&host).await
        });
        looking.await.unwrap_or_else(|panicked| Err(Cause::Resolve(io::Error::other(panicked))))
    }
}

/// Without a member's share: for names that the mesh has chosen.
impl Resolver for SharedResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a> {
        match &host.host {
            Host::Ip(_) => self.inner.resolve(host),
            Host::Name(_) => Box::pin(self.ask(host, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::BTreeSet,
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tokio::{sync::Notify, task::yield_now};

    const ANSWER: &str = "192.0.2.1:80";

    /// Names beginning with `hangs` are answered when told; all others at once.
    #[derive(Debug, Default)]
    struct Hanging {
        answer: Notify,
        begun: AtomicUsize,
    }

    impl Resolver for Hanging {
        fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a> {
            Box::pin(async move {
                if host.host.to_string().starts_with("hangs") {
                    self.begun.fetch_add(1, Ordering::SeqCst);
                    self.answer.notified().await;
                }
                Ok(vec![ANSWER.parse().unwrap()])
            })
        }
    }

    fn scene() -> (Arc<Hanging>, Arc<SharedResolver>) {
        let hanging = Arc::new(Hanging::default());
        let shared = SharedResolver::new(Arc::clone(&hanging) as Arc<dyn Resolver>);
        (hanging, Arc::new(shared))
    }

    fn host(name: &str) -> Destination {
        Destination::new(name, 80).unwrap()
    }

    fn member(seed: u8) -> NodeId {
        NodeId::from_bytes([seed; 32])
    }

    fn is_refused(answer: Result<Vec<SocketAddr>, Refusal>) -> bool {
        matches!(answer, Err(Refusal::Names(_)))
    }

    /// Begins look-ups and gives each of them up, as a session that is out of time.
    async fn give_up(shared: &SharedResolver, by: NodeId, names: usize) -> usize {
        let mut refusals = 0;
        for n in 0..names {
            let to = host(&format!("hangs-{n}.test"));
            let mut asked = pin!(shared.resolve_for(by, &to));
            tokio::select! {
                biased;
                answer = &mut asked => refusals += usize::from(is_refused(answer)),
                () = yield_now() => {}
            }
        }
        refusals
    }

    #[tokio::test]
    async fn a_member_whose_names_hang_takes_its_share_alone() {
        let (hanging, shared) = scene();
        let refusals = give_up(&shared, member(1), 1000).await;
        assert_eq!(refusals, 1000 - OF_ONE, "given up is not ended");
        assert_eq!(hanging.begun.load(Ordering::SeqCst), OF_ONE);
        let other = shared.resolve_for(member(2), &host("other.test")).await.unwrap();
        assert_eq!(other, [ANSWER.parse().unwrap()]);
        assert!(is_refused(shared.resolve_for(member(1), &host("good.test")).await));
        let address: Destination = "192.0.2.1:80".parse().unwrap();
        shared.resolve_for(member(1), &address).await.expect("an address is no look-up");
        // Once they have ended, the share is free again.
        hanging.answer.notify_waiters();
        while shared.resolve_for(member(1), &host("good.test")).await.is_err() {
            yield_now().await;
        }
        let known: BTreeSet<_> = shared.members.lock().unwrap().keys().copied().collect();
        assert!(known.len() <= 1, "who has no look-up is forgotten: {known:?}");
    }

    #[tokio::test]
    async fn no_more_than_the_bound_run_and_the_next_waits() {
        let (hanging, shared) = scene();
        for seed in 0..(AT_ONCE / OF_ONE) as u8 {
            assert_eq!(give_up(&shared, member(seed), OF_ONE).await, 0);
        }
        let to = host("late.test");
        let mut late = pin!(shared.resolve_for(member(99), &to));
        for _ in 0..100 {
            tokio::select! {
                biased;
                answer = &mut late => panic!("beyond the bound: {answer:?}"),
                () = yield_now() => {}
            }
        }
        assert_eq!(hanging.begun.load(Ordering::SeqCst), AT_ONCE);
        hanging.answer.notify_one();
        late.await.unwrap();
    }
}
