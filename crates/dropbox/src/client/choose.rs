//! Which node gets the data.

use crate::{Line, LineError, Port};
use futures_util::future::join_all;
use std::time::Duration;
use thalweg_net::channel::Connector;
use thalweg_wire::{
    bistro::{Answer, Ask, Load, Refusal, Sheet, SheetNode},
    mesh::Name,
};
use tokio::time::{Instant, timeout};

/// A node that has not answered by then is not near.
const PATIENCE: Duration = Duration::from_secs(3);

/// Below this, round trips do not tell how near nodes are.
const NEAR: Duration = Duration::from_millis(1);

/// Costs up to so many times the least are as good as it.
const ALIKE: f64 = 1.5;

/// A node that answers, ready to take data.
#[derive(Debug)]
pub struct Offer {
    /// Which.
    pub node: SheetNode,
    /// The channel to it.
    pub line: Line,
    /// How busy it says it is.
    pub load: Load,
    /// What that answer took: about a round trip.
    pub rtt: Duration,
}

impl Offer {
    /// What it costs: a round trip, as many times as there are who share the node.
    ///
    /// Neither its rate nor the path's is known before data flows; a node's neighbours are what it tells.
    fn cost(&self) -> f64 {
        cost(self.rtt, self.load)
    }
}

fn cost(rtt: Duration, load: Load) -> f64 {
    rtt.max(NEAR).as_secs_f64() * (1.0 + f64::from(load.pushes))
}

/// The nodes of a box that answer and have room for `bytes`, the best first; and why others do not.
///
/// `draw` is a random number from 0 to 1: those that cost about the same are taken in turn by
/// it, so that many clients that come at once do not all take the same one.
pub async fn nearest(
    connector: &Connector,
    sheet: &Sheet,
    bytes: u64,
    draw: f64,
) -> (Vec<Offer>, Vec<(Name, String)>) {
    let asking = sheet.nodes.iter().map(|node| async move {
        let offered = timeout(PATIENCE, offer(connector, node, &sheet.drop_box)).await;
        let late = |_| Err(format!("no answer in {PATIENCE:?}"));
        let offered = offered.unwrap_or_else(late);
        offered.map_err(|why| (node.name.clone(), why))
    });
    let (mut offers, mut others) = (Vec::new(), Vec::new());
    // At once: a box has 64 nodes at most.
    for answer in join_all(asking).await {
        match answer {
            Ok(offer) if offer.load.room < bytes => {
                others.push((offer.node.name, Refusal::NoRoom(bytes).to_string()));
            }
            Ok(offer) => offers.push(offer),
            Err(other) => others.push(other),
        }
    }
    offers.sort_by(|a, b| a.cost().total_cmp(&b.cost()));
    let costs: Vec<f64> = offers.iter().map(Offer::cost).collect();
    let first = drawn(&costs, draw);
    if first < offers.len() {
        let chosen = offers.remove(first);
        offers.insert(0, chosen);
    }
    (offers, others)
}

/// Which of these rising costs is taken.
fn drawn(costs: &[f64], draw: f64) -> usize {
    let least = costs.first().copied().unwrap_or(0.0);
    let alike = costs.iter().filter(|cost| **cost <= ALIKE * least).count();
    ((draw * alike as f64) as usize).min(alike.saturating_sub(1))
}

async fn offer(connector: &Connector, node: &SheetNode, name: &Name) -> Result<Offer, String> {
    let told = |e: LineError| e.to_string();
    let mut line = Line::open(connector, &Port::on(node)).await.map_err(told)?;
    let asked = Instant::now();
    match line.ask(&Ask::Load(name.clone())).await.map_err(told)? {
        Answer::Load(load) => Ok(Offer { node: node.clone(), line, load, rtt: asked.elapsed() }),
        Answer::Refused(refusal) => Err(refusal.to_string()),
        _ => Err("it answers something else".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_idle_nodes_are_cheap() {
        let at = |ms, pushes| cost(Duration::from_millis(ms), Load { pushes, room: 0 });
        assert!(at(10, 0) < at(50, 0) && at(50, 0) < at(10, 9));
        assert_eq!(at(0, 0), at(1, 0));
    }

    #[test]
    fn those_that_cost_the_same_are_taken_in_turn() {
        let costs = [1.0, 1.2, 1.5, 1.6, 9.0];
        let taken = [0.0, 0.3, 0.34, 0.67, 0.999, 1.0].map(|draw| drawn(&costs, draw));
        assert_eq!(taken, [0, 0, 1, 2, 2, 2]);
        assert_eq!((drawn(&[], 0.5), drawn(&[3.0], 0.9)), (0, 0));
    }
}
