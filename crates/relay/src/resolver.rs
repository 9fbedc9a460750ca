//! Name resolution for a relay: the trait, the system's resolver, and one whose look-ups members share.

use super::refusal::Refusal;
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt, io, net::SocketAddr, pin::Pin, sync::Arc};
use thalweg_net::Cause;
use thalweg_units::NodeId;
use thalweg_wire::{Destination, Host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most look-ups at a time, since each holds a blocking thread for up to half a minute. It is half of the daemon's
/// 64 blocking threads, so that file access and the daemon's own look-ups always find a free one.
const MAX_LOOKUPS: usize = 32;

/// The most look-ups of one member at a time, including waiting ones. A web page has names of a handful of hosts, and
/// one member can take a quarter of [`MAX_LOOKUPS`] at most.
const MAX_PER_MEMBER: usize = 8;

/// The answer to [`Resolver::resolve`].
pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, Cause>> + Send + 'a>>;

/// Turns a destination into addresses.
///
/// A relay resolves each name of a connection once, checks every address of the answer, and dials only checked
/// addresses. So a different answer to a later query (DNS rebinding) has no effect.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// Returns all addresses of `host`, at least one. An address resolves to itself.
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a>;
}

/// The system's resolver: `/etc/hosts`, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
        Box::pin(thalweg_net::resolve(host))
    }
}

/// A resolver that members share, with bounds on the look-ups at a time in all and of each member.
///
/// A look-up counts until the system has ended it, even if its connection is gone, because the system's look-ups cannot
/// be cancelled. A destination that is an address needs no look-up. Must be used within a tokio runtime.
#[derive(Debug)]
pub struct SharedResolver {
    inner: Arc<dyn Resolver>,
    all: Arc<Semaphore>,
    /// Only of members with look-ups, of which there are at most [`MAX_PER_MEMBER`] for each session.
    members: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
}

/// The member has too many look-ups, so another one is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a member may resolve at most {MAX_PER_MEMBER} names at a time; try again when one is resolved"
)]
pub struct TooManyNames;

impl SharedResolver {
    /// Creates a shared resolver over `inner`.
    pub fn new(inner: Arc<dyn Resolver>) -> Self {
        let all = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { inner, all, members: Mutex::default() }
    }

    /// Like [`Resolver::resolve`], for the member with this principal key. Waits while `MAX_LOOKUPS` are under way.
    ///
    /// # Errors
    /// [`Refusal::NoLeg`] with the resolver's error; [`Refusal::Names`] at once if the member has too many look-ups.
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

    /// Takes one of the member's look-ups; `None` if all are taken.
    fn share(&self, member: NodeId) -> Option<OwnedSemaphorePermit> {
        let mut members = self.members.lock();
        members.retain(|_, permits| permits.available_permits() < MAX_PER_MEMBER);
        let permits =
            members.entry(member).or_insert_with(|| Arc::new(Semaphore::new(MAX_PER_MEMBER)));
        Arc::clone(permits).try_acquire_owned().ok()
    }

    /// Runs a look-up in a task of its own, which holds the permits until the look-up's end.
    async fn ask(
        &self,
        host: &Destination,
        share: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<SocketAddr>, Cause> {
        // This fails only if the semaphore is closed, which never happens.
        let place = Arc::clone(&self.all).acquire_owned().await;
        let (inner, host) = (Arc::clone(&self.inner), host.clone());
        let looking = tokio::spawn(async move {
            let _places = (place, share);
            inner.resolve(&host).await
        });
        looking.await.unwrap_or_else(|panicked| Err(Cause::Resolve(io::Error::other(panicked))))
    }
}

/// Resolves without a member's share, for names that the roster contains.
impl Resolver for SharedResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
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

    /// Answers names that begin with `hangs` on request, and all others at once.
    #[derive(Debug, Default)]
    struct Hanging {
        answer: Notify,
        begun: AtomicUsize,
    }

    impl Resolver for Hanging {
        fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
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

    /// Starts look-ups and drops each of them, like a session that runs out of time. Returns the number of refusals.
    async fn give_up(shared: &SharedResolver, member: NodeId, names: usize) -> usize {
        let mut refusals = 0;
        for n in 0..names {
            let to = host(&format!("hangs-{n}.test"));
            let mut asked = pin!(shared.resolve_for(member, &to));
            tokio::select! {
                biased;
                answer = &mut asked => refusals += usize::from(is_refused(answer)),
                () = yield_now() => {}
            }
        }
        refusals
    }

    #[tokio::test]
    async fn a_member_with_hanging_look_ups_takes_only_its_share() {
        let (hanging, shared) = scene();
        let refusals = give_up(&shared, member(1), 1000).await;
        assert_eq!(refusals, 1000 - MAX_PER_MEMBER, "given up is not ended");
        assert_eq!(hanging.begun.load(Ordering::SeqCst), MAX_PER_MEMBER);
        let other = shared.resolve_for(member(2), &host("other.test")).await.unwrap();
        assert_eq!(other, [ANSWER.parse().unwrap()]);
        assert!(is_refused(shared.resolve_for(member(1), &host("good.test")).await));
        let address: Destination = "192.0.2.1:80".parse().unwrap();
        shared.resolve_for(member(1), &address).await.expect("an address is no look-up");
        // After their end the member's share is free again.
        hanging.answer.notify_waiters();
        while shared.resolve_for(member(1), &host("good.test")).await.is_err() {
            yield_now().await;
        }
        let known: BTreeSet<_> = shared.members.lock().keys().copied().collect();
        assert!(known.len() <= 1, "who has no look-up is forgotten: {known:?}");
    }

    #[tokio::test]
    async fn look_ups_beyond_the_bound_wait() {
        let (hanging, shared) = scene();
        for seed in 0..(MAX_LOOKUPS / MAX_PER_MEMBER) as u8 {
            assert_eq!(give_up(&shared, member(seed), MAX_PER_MEMBER).await, 0);
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
        assert_eq!(hanging.begun.load(Ordering::SeqCst), MAX_LOOKUPS);
        hanging.answer.notify_one();
        late.await.unwrap();
    }
}
