//! Budgets of bytes by purpose: the bytes that may still be sent or fetched, and those that were.
//!
//! Code that moves bytes which a user, a peer or an operator may want to limit asks here *before* it moves them: the
//! prober, the duplicates of a bond or of path selection, and a relay's quotas.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, fmt, net::IpAddr, num::NonZeroU32};
use thalweg_units::{ByteSize, NodeId};
use thiserror::Error;

/// The purpose of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Data that the user wants to move, the first time.
    Data,
    /// Measurement only.
    Probe,
    /// Data that is moved a second time: unused samples, hedges, repairs.
    Duplicate,
}

/// The peer with which bytes are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKey {
    /// A node of the mesh.
    Node(NodeId),
    /// A host that is identified only by its address.
    Address(IpAddr),
}

/// The subject of a limit or a count; `None` stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The interface's kernel index.
    pub interface: Option<NonZeroU32>,
    pub peer: Option<PeerKey>,
    pub purpose: Option<Purpose>,
}

impl Scope {
    /// All bytes.
    pub const ALL: Self = Self { interface: None, peer: None, purpose: None };

    /// All bytes for one purpose.
    pub const fn purpose(purpose: Purpose) -> Self {
        Self { purpose: Some(purpose), ..Self::ALL }
    }

    /// The scopes in which bytes of this scope count: each field either as it is or for all.
    fn covering(self) -> impl Iterator<Item = Self> {
        (0..8u8).map(move |general| Self {
            interface: self.interface.filter(|_| general & 1 == 0),
            peer: self.peer.filter(|_| general & 2 == 0),
            purpose: self.purpose.filter(|_| general & 4 == 0),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.purpose {
            Some(purpose) => write!(f, "{purpose:?}")?,
            None => f.write_str("All")?,
        }
        f.write_str(" bytes")?;
        if let Some(interface) = self.interface {
            write!(f, " on interface {interface}")?;
        }
        match self.peer {
            Some(PeerKey::Node(id)) => write!(f, " with node {id}"),
            Some(PeerKey::Address(ip)) => write!(f, " with {ip}"),
            None => Ok(()),
        }
    }
}

/// A limit would be exceeded; nothing was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{scope} are limited to {limit}; {spent} are used, and {asked} more were requested")]
pub struct OverBudget {
    /// The scope of the limit.
    pub scope: Scope,
    pub limit: ByteSize,
    /// The bytes spent in the scope.
    pub spent: ByteSize,
    pub asked: ByteSize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    spent: ByteSize,
    limit: Option<ByteSize>,
}

/// The most accounts: 300 peers by 8 interfaces by 3 purposes, with all their sums, are fewer than 16,000. Bytes of
/// further peers count only in the sums over all peers.
const MAX_ACCOUNTS: usize = 16_384;

/// Counts and limits of bytes, shared by all threads of a process.
///
/// All bytes count in their exact scope and in all wider ones, so a limit can be set on any of them. Counts only grow;
/// the owner of a limit per period (bytes per day) renews it with [`Budget::renew`].
#[derive(Debug, Default)]
pub struct Budget {
    accounts: Mutex<BTreeMap<Scope, Account>>,
}

impl Budget {
    /// Creates a budget without limits and with nothing spent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets or removes the limit of a scope. Bytes already spent count.
    pub fn set_limit(&self, scope: Scope, limit: Option<ByteSize>) {
        self.lock().entry(scope).or_default().limit = limit;
    }

    /// Starts a new period for a scope: its count returns to zero, and its limit stays.
    pub fn renew(&self, scope: Scope) {
        if let Some(account) = self.lock().get_mut(&scope) {
            account.spent = ByteSize::ZERO;
        }
    }

    /// Spends `size`, unless a limit of this scope or of a wider one would be exceeded.
    ///
    /// The whole size is spent or nothing, atomically between threads.
    ///
    /// # Errors
    /// [`OverBudget`] with one of the limits; nothing is spent.
    pub fn try_spend(&self, scope: Scope, size: ByteSize) -> Result<(), OverBudget> {
        let mut accounts = self.lock();
        admit(&accounts, scope, size)?;
        spend(&mut accounts, scope, size);
        Ok(())
    }

    /// Whether `size` could be spent now, without spending it.
    ///
    /// # Errors
    /// [`OverBudget`] with one of the limits.
    pub fn check(&self, scope: Scope, size: ByteSize) -> Result<(), OverBudget> {
        admit(&self.lock(), scope, size)
    }

    /// Counts bytes that were already moved, and reports whether a limit is now exceeded.
    ///
    /// It serves flows whose size is not known in advance; the caller stops on an error.
    ///
    /// # Errors
    /// [`OverBudget`] with one of the limits; the bytes are counted all the same.
    pub fn settle(&self, scope: Scope, size: ByteSize) -> Result<(), OverBudget> {
        let mut accounts = self.lock();
        spend(&mut accounts, scope, size);
        admit(&accounts, scope, ByteSize::ZERO)
    }

    /// Counts bytes that were already moved, regardless of limits.
    ///
    /// It serves bytes that cannot be known in advance; the next [`Budget::try_spend`] takes them into account.
    pub fn charge(&self, scope: Scope, size: ByteSize) {
        spend(&mut self.lock(), scope, size);
    }

    /// The bytes spent in a scope.
    pub fn spent(&self, scope: Scope) -> ByteSize {
        self.lock().get(&scope).copied().unwrap_or_default().spent
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Scope, Account>> {
        self.accounts.lock()
    }
}

/// Checks that `size` more bytes exceed no limit of this scope and of the wider ones.
fn admit(
    accounts: &BTreeMap<Scope, Account>,
    scope: Scope,
    size: ByteSize,
) -> Result<(), OverBudget> {
    for scope in scope.covering() {
        let Account { spent, limit } = accounts.get(&scope).copied().unwrap_or_default();
        if let Some(limit) = limit.filter(|limit| spent + size > *limit) {
            return Err(OverBudget { scope, limit, spent, asked: size });
        }
    }
    Ok(())
}

fn spend(accounts: &mut BTreeMap<Scope, Account>, scope: Scope, size: ByteSize) {
    // A scope that already stands for all in some field covers itself more than once; it counts once.
    let mut scopes: Vec<_> = scope.covering().collect();
    scopes.sort_unstable();
    scopes.dedup();
    for scope in scopes {
        if accounts.len() < MAX_ACCOUNTS || accounts.contains_key(&scope) || scope.peer.is_none() {
            accounts.entry(scope).or_default().spent += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::Ipv4Addr, sync::Arc, thread};

    const fn bytes(n: u64) -> ByteSize {
        ByteSize::from_bytes(n)
    }

    fn scope(interface: u32, peer: u8, purpose: Purpose) -> Scope {
        Scope {
            interface: NonZeroU32::new(interface),
            peer: Some(PeerKey::Address(Ipv4Addr::new(10, 0, 0, peer).into())),
            purpose: Some(purpose),
        }
    }

    #[test]
    fn bytes_count_once_in_their_scope_and_in_all_wider_ones() {
        let budget = Budget::new();
        budget.charge(scope(1, 1, Purpose::Data), bytes(10));
        budget.charge(scope(2, 1, Purpose::Probe), bytes(5));
        budget.charge(Scope::purpose(Purpose::Probe), bytes(1));
        let peer = Scope { interface: None, purpose: None, ..scope(1, 1, Purpose::Data) };
        assert_eq!(budget.spent(Scope::ALL), bytes(16));
        assert_eq!(budget.spent(peer), bytes(15));
        assert_eq!(budget.spent(Scope::purpose(Purpose::Probe)), bytes(6));
        assert_eq!(budget.spent(scope(2, 1, Purpose::Probe)), bytes(5));
        assert_eq!(budget.spent(scope(1, 2, Purpose::Data)), ByteSize::ZERO);
    }

    #[test]
    fn a_limit_of_a_wider_scope_applies_and_nothing_is_spent() {
        let budget = Budget::new();
        budget.set_limit(Scope::purpose(Purpose::Probe), Some(bytes(100)));
        assert_eq!(budget.try_spend(scope(1, 1, Purpose::Probe), bytes(60)), Ok(()));
        let over = budget.try_spend(scope(2, 2, Purpose::Probe), bytes(41)).unwrap_err();
        assert_eq!((over.spent, over.limit), (bytes(60), bytes(100)));
        assert_eq!(budget.spent(scope(2, 2, Purpose::Probe)), ByteSize::ZERO);
        assert_eq!(budget.try_spend(scope(2, 2, Purpose::Probe), bytes(40)), Ok(()));
        assert_eq!(budget.try_spend(scope(2, 2, Purpose::Data), bytes(1_000_000)), Ok(()));
        assert!(over.to_string().starts_with("Probe bytes are limited to 100 B"), "{over}");
    }

    #[test]
    fn charges_exceed_a_limit_and_a_new_period_starts_at_zero() {
        let budget = Budget::new();
        budget.set_limit(Scope::ALL, Some(bytes(10)));
        budget.charge(Scope::ALL, bytes(25));
        assert!(budget.try_spend(Scope::ALL, bytes(1)).is_err());
        budget.renew(Scope::ALL);
        assert_eq!(budget.try_spend(Scope::ALL, bytes(10)), Ok(()));
        assert!(budget.try_spend(Scope::ALL, bytes(1)).is_err());
        budget.set_limit(Scope::ALL, None);
        assert_eq!(budget.try_spend(Scope::ALL, bytes(1)), Ok(()));
    }

    #[test]
    fn settled_bytes_are_counted_and_an_exceeded_limit_is_reported() {
        let budget = Budget::new();
        budget.set_limit(Scope::ALL, Some(bytes(10)));
        assert_eq!(budget.check(Scope::ALL, bytes(10)), Ok(()));
        assert!(budget.check(Scope::ALL, bytes(11)).is_err());
        assert_eq!(budget.settle(Scope::ALL, bytes(10)), Ok(()));
        let over = budget.settle(scope(1, 1, Purpose::Data), bytes(5)).unwrap_err();
        assert_eq!((over.spent, budget.spent(Scope::ALL)), (bytes(15), bytes(15)));
    }

    #[test]
    fn threads_together_spend_exactly_the_limit() {
        let budget = Arc::new(Budget::new());
        budget.set_limit(Scope::ALL, Some(bytes(1000)));
        let spender = |peer| {
            let budget = Arc::clone(&budget);
            thread::spawn(move || {
                let one = || budget.try_spend(scope(1, peer, Purpose::Data), bytes(7)).is_ok();
                (0..100).filter(|_| one()).count()
            })
        };
        let threads: Vec<_> = (0..4).map(spender).collect();
        let granted: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        // 1000 / 7 allows 142 whole spendings.
        assert_eq!(granted, 142);
        assert_eq!(budget.spent(Scope::ALL), bytes(994));
    }

    #[test]
    fn a_flood_of_peers_stays_bounded_and_counts_in_the_sum() {
        let budget = Budget::new();
        for peer in 0..20_000u32 {
            let peer = Some(PeerKey::Address(Ipv4Addr::from(peer).into()));
            budget.charge(Scope { peer, ..Scope::ALL }, bytes(1));
        }
        assert_eq!(budget.spent(Scope::ALL), bytes(20_000));
        assert_eq!(budget.lock().len(), MAX_ACCOUNTS);
    }
}
