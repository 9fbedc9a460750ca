//! Orders that have been used: each is valid for one flow.

use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};
use thalweg_wire::mesh::measure_ticket::{CLOCKS_APART, LONGEST};
use tokio::time::Instant;

/// The most numbers that are remembered: two a second for [`KEPT`]. A flow takes longer, and there is one at a time.
/// Only the oracle's orders get here, so nobody else can fill this. If it were full, a further order would be refused.
const MOST: usize = 4096;

/// From its first use on, an order cannot be valid for longer than this by this host's clock. The time is counted on
/// the steady clock: a date that jumps makes no order valid again.
const KEPT: Duration = LONGEST.saturating_add(CLOCKS_APART).saturating_add(CLOCKS_APART);

/// The numbers of used orders. A restart forgets them: a dozen orders, of half a minute each.
#[derive(Debug, Default)]
pub(super) struct UsedOrders(Mutex<BTreeMap<u64, Instant>>);

impl UsedOrders {
    /// Whether this order has been used.
    pub fn has(&self, order: u64) -> bool {
        self.0.lock().contains_key(&order)
    }

    /// Marks the order as used. Returns false if it was used before, or there is no room for its number.
    pub fn spend(&self, order: u64) -> bool {
        let (now, mut used) = (Instant::now(), self.0.lock());
        used.retain(|_, since| now.duration_since(*since) < KEPT);
        let is_new = used.len() < MOST && !used.contains_key(&order);
        is_new.then(|| used.insert(order, now));
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_order_is_valid_once_and_remembered_until_it_has_expired() {
        let used = UsedOrders::default();
        assert!(!used.has(7) && used.spend(7));
        assert!(used.has(7) && !used.spend(7) && !used.has(8));
        tokio::time::advance(KEPT - Duration::from_secs(1)).await;
        assert!(!used.spend(7) && used.spend(8));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(used.spend(7), "it is refused by its date");
        assert!(!used.spend(8));
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_cannot_be_remembered_is_refused() {
        let used = UsedOrders::default();
        assert!((0..MOST as u64).all(|order| used.spend(order)));
        assert!(!used.spend(MOST as u64));
        tokio::time::advance(KEPT).await;
        assert!(used.spend(MOST as u64));
    }
}
