//! Resolves the host names of members that the client avoids by their tags, so that the gate knows their addresses.

use super::{
    super::{denial::Denial, resolver::Resolver},
    Gate,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_net::Cause;
use thalweg_wire::{
    Destination,
    mesh::{Member, RosterRank},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// The most look-ups at a time of all sessions, since each holds a thread of the system's resolver.
const MAX_LOOKUPS: usize = 8;

/// How long an answer is used: the usual TTL of names whose addresses change.
const CACHE_TIME: Duration = Duration::from_secs(60);

/// The addresses of avoided members' names, cached for a minute, and for one roster only ([`RosterRank`]).
#[derive(Debug)]
pub struct AvoidedNames {
    permits: Arc<Semaphore>,
    cache: Mutex<Cache>,
}

/// Cached answers for names of a single roster, which bounds their number.
#[derive(Debug, Default)]
struct Cache {
    rank: RosterRank,
    answers: BTreeMap<Destination, (Instant, Vec<SocketAddr>)>,
}

impl Default for AvoidedNames {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_LOOKUPS)), cache: Mutex::default() }
    }
}

impl AvoidedNames {
    /// Resolves the names of avoided members that may have the address of the requested destination `asked`, and adds
    /// the addresses to the gate.
    ///
    /// A name that does not exist has no address. If a name cannot be resolved for another reason, its address may be
    /// the requested one, so the connection is refused.
    ///
    /// # Errors
    /// [`Denial::AvoidsUnknown`].
    pub async fn resolve_into(
        &self,
        gate: &mut Gate<'_>,
        rank: RosterRank,
        asked: &Destination,
        resolver: &Arc<dyn Resolver>,
    ) -> Result<(), Denial> {
        let names = gate.names_to_resolve(asked);
        let mut asking = JoinSet::new();
        for (name, _) in names.iter().filter(|(name, _)| self.known(rank, name).is_none()) {
            let (name, resolver, permits) =
                (name.clone(), Arc::clone(resolver), Arc::clone(&self.permits));
            asking.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let answer = resolver.resolve(&name).await;
                (name, answer)
            });
        }
        let mut fresh = BTreeMap::new();
        // The answer of a look-up that panicked is missing below, so the connection is refused.
        while let Some(Ok((name, answer))) = asking.join_next().await {
            if let Some(addresses) = known_addresses(answer) {
                self.keep(rank, &name, &addresses);
                fresh.insert(name, addresses);
            }
        }
        for (name, member) in names {
            let addresses = fresh.get(&name).cloned().or_else(|| self.known(rank, &name));
            gate.add_resolved(member, &addresses.ok_or_else(|| unknown(member, name))?);
        }
        Ok(())
    }

    fn known(&self, rank: RosterRank, name: &Destination) -> Option<Vec<SocketAddr>> {
        let cache = self.cache.lock();
        let (at, addresses) = cache.answers.get(name).filter(|_| cache.rank == rank)?;
        (at.elapsed() < CACHE_TIME).then(|| addresses.clone())
    }

    fn keep(&self, rank: RosterRank, name: &Destination, addresses: &[SocketAddr]) {
        let mut cache = self.cache.lock();
        if cache.rank < rank {
            *cache = Cache { rank, answers: BTreeMap::new() };
        }
        if cache.rank == rank {
            cache.answers.insert(name.clone(), (Instant::now(), addresses.to_vec()));
        }
    }
}

fn unknown(member: &Member, name: Destination) -> Denial {
    Denial::AvoidsUnknown(member.name.clone(), name)
}

/// The addresses in an answer, empty if the name does not exist; `None` if the look-up failed, so that nothing is
/// known.
fn known_addresses(answer: Result<Vec<SocketAddr>, Cause>) -> Option<Vec<SocketAddr>> {
    match answer {
        Ok(addresses) => Some(addresses),
        Err(Cause::NoAddress) => Some(Vec::new()),
        Err(Cause::Resolve(error)) if is_absent(&error) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Whether the name servers answered that the name does not exist.
///
/// The standard library returns an error of `getaddrinfo` only as text. These are the texts of glibc and musl for
/// `EAI_NONAME` and `EAI_NODATA`. Any other text counts as a failure.
fn is_absent(error: &io::Error) -> bool {
    const ABSENT: [&str; 4] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
    ];
    let text = error.to_string();
    error.kind() == io::ErrorKind::NotFound || ABSENT.iter().any(|absent| text.contains(absent))
}
