//! Limits the number and the memory of relayed casts.

use super::{
    super::reception::{RING_TERMS, geometry},
    Relay,
};
use crate::Settings;
use crate::ring::ProofCache;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thalweg_wire::{
    Signed,
    cast::{CastId, Offer, Refusal, RingTerms},
};
use tokio::{runtime::Handle, time::sleep};

/// A relay without a source and without children is dropped after this time.
const ALONE: Duration = Duration::from_secs(60);

/// Relayed casts by ID.
type RelayMap = Mutex<BTreeMap<CastId, Arc<Relay>>>;

/// All relayed casts, and the limits on them.
#[derive(Debug)]
pub struct RelayTable {
    is_willing: bool,
    most: usize,
    /// The memory limit of all relayed casts together, in bytes.
    memory: u64,
    pub all: Arc<RelayMap>,
}

impl RelayTable {
    /// Creates an empty set with the limits of the settings.
    pub fn new(settings: &Settings) -> Self {
        let (is_willing, most) = (settings.relay, settings.max_casts);
        let memory = settings.relay_memory.as_bytes();
        Self { is_willing, most, memory, all: Arc::default() }
    }

    /// Admits a cast, or returns the one that exists already. Reserves memory for the offer's digests and ring.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn take(&self, offer: Signed<Offer>, pass: Vec<u8>) -> Result<RelaySlot, Refusal> {
        let (id, beside) = (offer.value().id(&offer.signer()), beside_ring(offer.value())?);
        let mut all = self.all.lock();
        self.check(&offer, &all)?;
        let relay = match all.get(&id) {
            Some(known) => Arc::clone(known),
            None => {
                let relay = Arc::new(Relay::new(id, offer, pass, beside));
                all.insert(id, Arc::clone(&relay));
                relay
            }
        };
        relay.connections.fetch_add(1, Relaxed);
        Ok(RelaySlot { relay, all: Arc::clone(&self.all) })
    }

    /// Checks whether [`Self::take`] would succeed, without changing anything.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn would_take(&self, offer: &Signed<Offer>) -> Result<(), Refusal> {
        self.check(offer, &self.all.lock())
    }

    fn check(
        &self,
        offer: &Signed<Offer>,
        all: &BTreeMap<CastId, Arc<Relay>>,
    ) -> Result<(), Refusal> {
        if !self.is_willing {
            return Err(Refusal::NoRelay);
        }
        let wanted = beside_ring(offer.value())?.saturating_add(RING_TERMS.bytes);
        let is_known = all.contains_key(&offer.value().id(&offer.signer()));
        match !is_known && (all.len() >= self.most || wanted > self.free_memory(all)) {
            true => Err(Refusal::Busy),
            false => Ok(()),
        }
    }

    /// Unreserved memory, in bytes.
    fn free_memory(&self, all: &BTreeMap<CastId, Arc<Relay>>) -> u64 {
        all.values().fold(self.memory, |left, relay| left.saturating_sub(relay.memory()))
    }

    /// Sets a relay's ring size to the source's request, as far as memory allows.
    pub fn set_ring(&self, relay: &Relay, asked: RingTerms) {
        let all = self.all.lock();
        // An existing ring keeps its size.
        if relay.body.get().is_none() {
            let own = relay.terms.lock().bytes;
            let most = own.saturating_add(self.free_memory(&all));
            *relay.terms.lock() = RingTerms { bytes: asked.bytes.min(most), ..asked };
        }
    }
}

/// A source's connection to a relay, from its admission until it disconnects.
#[derive(Debug)]
pub struct RelaySlot {
    pub(super) relay: Arc<Relay>,
    all: Arc<RelayMap>,
}

impl Drop for RelaySlot {
    fn drop(&mut self) {
        let (all, relay) = (Arc::clone(&self.all), Arc::clone(&self.relay));
        relay.connections.fetch_sub(1, Relaxed);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let mut is_there = true;
                while is_there {
                    sleep(ALONE).await;
                    is_there = is_kept(&all, &relay);
                }
            });
        }
    }
}

/// Removes a relay without source and children. Returns whether it stays for its children only.
fn is_kept(all: &RelayMap, relay: &Arc<Relay>) -> bool {
    // Sources are admitted under this lock.
    let mut all = all.lock();
    if relay.connections.load(Relaxed) > 0
        || !all.get(&relay.id).is_some_and(|r| Arc::ptr_eq(r, relay))
    {
        return false;
    }
    let has_children = relay.body.get().is_some_and(|body| body.ring.has_children());
    if !has_children {
        all.remove(&relay.id);
    }
    has_children
}

/// The maximum memory of a relayed offer's digests: the manifest encoded and decoded; pages and sheets decoded and as
/// messages.
fn beside_ring(offer: &Offer) -> Result<u64, Refusal> {
    let geometry = geometry(offer)?;
    let digests = 32 * u64::from(offer.shape.block_symbols.max(offer.shape.repair_symbols));
    Ok(2 * offer.manifest_bytes() + 2 * digests * ProofCache::capacity(&geometry) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::PrivateKey;
    use thalweg_units::{ByteSize, WallTime};
    use thalweg_wire::{ObjectId, cast::Shape, object::FilePath};

    const MIB: u64 = 1 << 20;

    fn table(memory: u64) -> RelayTable {
        let relay_memory = ByteSize::from_bytes(memory);
        RelayTable::new(&Settings { relay: true, max_casts: 2, relay_memory, ..Default::default() })
    }

    /// An offer of an object of this length, with 512 symbols of 16 KiB per block.
    fn offer(name: &str, length: u64, repair_symbols: u32) -> Signed<Offer> {
        let offer = Offer {
            name: FilePath::new(name.into()).unwrap(),
            object: ObjectId::from_bytes([0; 32]),
            length,
            layout: [0; 32],
            layout_bytes: 0,
            shape: Shape { symbol_bytes: 1 << 14, block_symbols: 512, repair_symbols },
            open: false,
            created: WallTime::from_unix_nanos(5),
            expiry: WallTime::from_unix_nanos(6),
        };
        Signed::sign(offer, &PrivateKey::from_seed(&[1; 32]))
    }

    #[test]
    fn an_admitted_cast_counts_at_once() {
        let table = table(256 * MIB);
        let take = |name| table.take(offer(name, MIB, 8), Vec::new());
        let _first = take("a").unwrap();
        let _second = take("b").unwrap();
        assert_eq!(take("c").unwrap_err(), Refusal::Busy);
        // The source of a known cast connects again.
        assert!(take("a").is_ok());
    }

    #[test]
    fn manifests_and_sheets_count() {
        let long = 1 << 40;
        assert!(table(64 * MIB).take(offer("a", long, 8), Vec::new()).is_err());
        assert!(table(80 * MIB).take(offer("a", long, 8), Vec::new()).is_ok());
        let sheets = offer("a", 1 << 30, 1 << 14);
        assert!(table(256 * MIB).take(sheets, Vec::new()).is_err());
    }

    #[test]
    fn rings_share_the_memory_limit() {
        let table = table(32 * MIB);
        let slots = ["a", "b"].map(|name| table.take(offer(name, MIB, 8), Vec::new()).unwrap());
        for slot in &slots {
            table.set_ring(&slot.relay, RingTerms { bytes: 64 * MIB, part: 1, parts: 2 });
        }
        let ring = |slot: &RelaySlot| slot.relay.terms.lock().bytes;
        assert!(ring(&slots[0]) > 8 * MIB && ring(&slots[1]) == RING_TERMS.bytes);
        let all: u64 = slots.iter().map(|slot| slot.relay.memory()).sum();
        assert_eq!(all, 32 * MIB);
        // If the first relay asks for less, the second can get more.
        table.set_ring(&slots[0].relay, RING_TERMS);
        table.set_ring(&slots[1].relay, RingTerms { bytes: 4 * MIB, part: 1, parts: 2 });
        assert_eq!(ring(&slots[1]), 4 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_without_a_source_is_dropped() {
        let table = table(256 * MIB);
        let slot = table.take(offer("a", MIB, 8), Vec::new()).unwrap();
        let again = table.take(offer("a", MIB, 8), Vec::new()).unwrap();
        drop(slot);
        sleep(2 * ALONE).await;
        assert_eq!(table.all.lock().len(), 1, "its source has come again");
        drop(again);
        sleep(2 * ALONE).await;
        assert!(table.all.lock().is_empty());
    }
}
