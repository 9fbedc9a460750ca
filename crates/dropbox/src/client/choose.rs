//! Chooses the node that gets the data.

use crate::{NodeAddress, NodeChannel, NodeChannelError};
use futures_util::future::join_all;
use std::time::Duration;
use thalweg_net::channel::Connector;
use thalweg_wire::{
    bistro::{Load, Refusal, Sheet, SheetNode, SubmitReply, SubmitRequest},
    mesh::Name,
};
use tokio::time::{Instant, timeout};

/// The maximum time for a node to answer; slower nodes are not considered.
const PATIENCE: Duration = Duration::from_secs(3);

/// Round trips below this count as equal, because their differences are not due to distance.
const NEAR: Duration = Duration::from_millis(1);

/// Costs up to this multiple of the lowest count as equal.
const ALIKE: f64 = 1.5;

/// A node that has answered and can take data.
#[derive(Debug)]
pub struct NodeOffer {
    pub node: SheetNode,
    pub line: NodeChannel,
    pub load: Load,
    /// The duration of that answer: about one round trip.
    pub rtt: Duration,
}

impl NodeOffer {
    /// The cost of the node: a round trip times the number of clients that share it.
    ///
    /// The rates of the node and of the path are unknown before data flows; the number of clients is that of the pushes
    /// under way that the node reports.
    fn cost(&self) -> f64 {
        cost(self.rtt, self.load)
    }
}

fn cost(rtt: Duration, load: Load) -> f64 {
    rtt.max(NEAR).as_secs_f64() * (1.0 + f64::from(load.pushes))
}

/// Returns the nodes of a box that answer and have room for `bytes`, the best first, and why the others are not usable.
///
/// `draw` is a random number from 0 to 1 that selects among nodes of about the same cost, so that many clients arriving
/// together do not all use the same node.
pub async fn find_nodes(
    connector: &Connector,
    sheet: &Sheet,
    bytes: u64,
    draw: f64,
) -> (Vec<NodeOffer>, Vec<(Name, String)>) {
    let asking = sheet.nodes.iter().map(|node| async move {
        let offered = timeout(PATIENCE, offer(connector, node, &sheet.drop_box)).await;
        let late = |_| Err(format!("no answer within {PATIENCE:?}"));
        let offered = offered.unwrap_or_else(late);
        offered.map_err(|why| (node.name.clone(), why))
    });
    let (mut offers, mut others) = (Vec::new(), Vec::new());
    // All at once: a box has at most 64 nodes.
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
    let costs: Vec<f64> = offers.iter().map(NodeOffer::cost).collect();
    let first = chosen_index(&costs, draw);
    if first < offers.len() {
        let chosen = offers.remove(first);
        offers.insert(0, chosen);
    }
    (offers, others)
}

/// The index of the chosen cost among these ascending costs.
fn chosen_index(costs: &[f64], draw: f64) -> usize {
    let least = costs.first().copied().unwrap_or(0.0);
    let alike = costs.iter().filter(|cost| **cost <= ALIKE * least).count();
    ((draw * alike as f64) as usize).min(alike.saturating_sub(1))
}

async fn offer(connector: &Connector, node: &SheetNode, name: &Name) -> Result<NodeOffer, String> {
    let told = |e: NodeChannelError| e.to_string();
    let mut line =
        NodeChannel::open(connector, &NodeAddress::from_sheet(node)).await.map_err(told)?;
    let asked = Instant::now();
    match line.ask(&SubmitRequest::Load(name.clone())).await.map_err(told)? {
        SubmitReply::Load(load) => {
            Ok(NodeOffer { node: node.clone(), line, load, rtt: asked.elapsed() })
        }
        SubmitReply::Refused(refusal) => Err(refusal.to_string()),
        _ => Err("its answer does not match the request".into()),
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
    fn nodes_of_equal_cost_are_drawn_evenly() {
        let costs = [1.0, 1.2, 1.5, 1.6, 9.0];
        let taken = [0.0, 0.3, 0.34, 0.67, 0.999, 1.0].map(|draw| chosen_index(&costs, draw));
        assert_eq!(taken, [0, 0, 1, 2, 2, 2]);
        assert_eq!((chosen_index(&[], 0.5), chosen_index(&[3.0], 0.9)), (0, 0));
    }
}
