//! Members that wait for orders.

use super::{Measuring, nodes::Slot, orders::Under};
use crate::{Oracle, Refusal, election::Standing, limits, publish::later};
use std::{sync::Arc, time::Duration};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    measure::{Order, Orders},
    measure_ticket::Ticket,
};
use tokio::{
    sync::{Notify, SemaphorePermit},
    time::{sleep, timeout},
};

/// Between two looks whether another oracle was elected meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// A waiting request's place among all and among its member's.
struct Place<'a> {
    measuring: &'a Measuring,
    key: NodeId,
    _among_all: SemaphorePermit<'a>,
}

impl<'a> Place<'a> {
    fn take(measuring: &'a Measuring, key: NodeId) -> Result<Self, Refusal> {
        let full = |_| Refusal::Waiting("all");
        let among_all = measuring.waiting.try_acquire().map_err(full)?;
        match measuring.waits_each.enter(key, limits::WAITING_EACH) {
            true => Ok(Self { measuring, key, _among_all: among_all }),
            false => Err(Refusal::Waiting("this member")),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.measuring.waits_each.leave(&self.key);
    }
}

impl Measuring {
    /// Notes that a member asks; its slot, and what wakes it. None: no member yet.
    async fn begin_poll(&self, key: &NodeId) -> Option<(Slot, Arc<Notify>)> {
        let mut state = self.state.lock().await;
        let slot = state.nodes.by_key(key)?;
        state.presence.heard(slot, self.now().time);
        let wake = state.orders.wake(slot);
        Some((slot, wake))
    }

    /// What there is for it now, signed with the mesh's key.
    async fn fetch(&self, slot: Slot, mesh: &PrivateKey) -> Orders {
        let mut state = self.state.lock().await;
        let now = self.now();
        let fetched = state.orders.fetch(slot, now.time);
        let order = |order: Under| {
            let (from, to) = (state.nodes.get(order.leg.0)?, state.nodes.get(order.leg.1)?);
            let (valid_for, bytes) =
                (order.until.since(now.time), self.config.test_bytes.as_bytes());
            let expiry = later(now.wall, valid_for);
            let ticket = Ticket { order: order.id, from: from.key, to: to.key, bytes, expiry };
            Some(Order {
                id: order.id,
                to: to.name.clone(),
                max_bytes: bytes,
                max_time: self.config.test_time,
                congestion_control: self.config.congestion_control.clone(),
                valid_for,
                ticket: ticket.sign(mesh),
            })
        };
        Orders { orders: fetched.into_iter().filter_map(order).collect() }
    }
}

impl Oracle {
    /// Orders for the member that this key stands for, as soon as there are any; empty if that
    /// does not happen in time.
    pub(crate) async fn orders(&self, key: NodeId, wait: Duration) -> Result<Orders, Refusal> {
        let measuring = &*self.inner.measuring;
        let _place = Place::take(measuring, key)?;
        let Some((slot, wake)) = measuring.begin_poll(&key).await else {
            // The roster is newer than what the service has seen of it: it asks again.
            return Ok(Orders::default());
        };
        measuring.news.notify_one();
        let mut stop = self.inner.stopping.subscribe();
        let ordered = async {
            loop {
                let orders = measuring.fetch(slot, &self.inner.key).await;
                if !orders.orders.is_empty() {
                    return orders;
                }
                wake.notified().await;
            }
        };
        let waited = timeout(wait, async {
            tokio::select! {
                orders = ordered => Ok(orders),
                elected = self.another_elected() => Err(Refusal::NotElected(elected)),
                _ = stop.wait_for(|stop| *stop) => Ok(Orders::default()),
            }
        });
        waited.await.unwrap_or_else(|_| Ok(Orders::default()))
    }

    /// Returns when another oracle is known to be elected, with its name. Who began to wait here
    /// while nobody was would else hear of it only when its request ends.
    async fn another_elected(&self) -> String {
        loop {
            if let Standing::Another(elected) = self.standing() {
                return self.name_of(&elected);
            }
            sleep(LOOK).await;
        }
    }
}
