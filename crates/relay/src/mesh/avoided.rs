//! Where members are that are to be avoided, if the roster has them by name.

use super::{
    super::{denial::Denial, resolver::Resolver},
    Gate,
};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_net::Cause;
use thalweg_wire::{Destination, mesh::Member};
use tokio::{sync::Semaphore, task::JoinSet};

/// Look-ups at a time, for all sessions: each holds a thread of the system's resolver.
const AT_ONCE: usize = 8;

/// How long an answer is believed: the usual time to live of a name that moves.
const BELIEVED: Duration = Duration::from_secs(60);

/// What the names of avoided members mean; remembered for a minute within one roster.
#[derive(Debug)]
pub struct AvoidedNames {
    places: Arc<Semaphore>,
    cache: Mutex<Cache>,
}

/// Names of one roster alone, which bounds them.
#[derive(Debug, Default)]
struct Cache {
    version: u64,
    answers: BTreeMap<Destination, (Instant, Vec<SocketAddr>)>,
}

impl Default for AvoidedNames {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), cache: Mutex::default() }
    }
}

impl AvoidedNames {
    /// Tells the gate of all of them that may hide behind `asked`.
    ///
    /// A name that does not exist hides nobody. One that nobody can tell about may hide
    /// what is to be avoided: then the connection is refused.
    ///
    /// # Errors
    /// [`Denial::AvoidsUnknown`].
    pub async fn teach(
        &self,
        gate: &mut Gate<'_>,
        version: u64,
        asked: &Destination,
        resolver: &Arc<dyn Resolver>,
    ) -> Result<(), Denial> {
        let names = gate.names_to_learn(asked);
        let mut asking = JoinSet::new();
        for (name, _) in names.iter().filter(|(name, _)| self.known(version, name).is_none()) {
            let (name, resolver, places) =
                (name.clone(), Arc::clone(resolver), Arc::clone(&self.places));
            asking.spawn(async move {
                let _place = places.acquire_owned().await;
                let answer = resolver.resolve(&name).await;
                (name, answer)
            });
        }
        let mut fresh = BTreeMap::new();
        // A look-up that panicked is missing below, and so refused.
        while let Some(Ok((name, answer))) = asking.join_next().await {
            if let Some(addresses) = settled(answer) {
                self.keep(version, &name, &addresses);
                fresh.insert(name, addresses);
            }
        }
        for (name, member) in names {
            let addresses = fresh.get(&name).cloned().or_else(|| self.known(version, &name));
            gate.learn(member, &addresses.ok_or_else(|| unknown(member, name))?);
        }
        Ok(())
    }

    fn known(&self, version: u64, name: &Destination) -> Option<Vec<SocketAddr>> {
        let cache = self.lock();
        let (at, addresses) = cache.answers.get(name).filter(|_| cache.version == version)?;
        (at.elapsed() < BELIEVED).then(|| addresses.clone())
    }

    fn keep(&self, version: u64, name: &Destination, addresses: &[SocketAddr]) {
        let mut cache = self.lock();
        if cache.version < version {
            *cache = Cache { version, answers: BTreeMap::new() };
        }
        if cache.version == version {
            cache.answers.insert(name.clone(), (Instant::now(), addresses.to_vec()));
        }
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(member: &Member, name: Destination) -> Denial {
    Denial::AvoidsUnknown(member.name.clone(), name)
}

/// The addresses, none if the name certainly has none; `None` if nobody could tell.
fn settled(answer: Result<Vec<SocketAddr>, Cause>) -> Option<Vec<SocketAddr>> {
    match answer {
        Ok(addresses) => Some(addresses),
        Err(Cause::NoAddress) => Some(Vec::new()),
        Err(Cause::Resolve(error)) if is_absent(&error) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Whether the name servers have said that there is no such name.
///
/// The standard library gives `getaddrinfo`'s error as a text alone: these are glibc's and
/// musl's for `EAI_NONAME` and `EAI_NODATA`. Any other text is taken for a failure.
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
