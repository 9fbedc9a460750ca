//! At a node that stores data: delivers its receipts to the box's destination, and retries until the destination has
//! stored or denied each.

use super::{
    ServiceState,
    node_channel::{NodeAddress, NodeChannel},
    receipts::DeliveringNode,
    served_box::{BoxRole, ServedBox},
    spool::Spool,
};
use std::time::Duration;
use thalweg_base::log::Event;
use thalweg_net::Ed25519;
use thalweg_wire::{
    Signer as _,
    bistro::{
        Denial, MOST_DELIVERIES, ReceiptDelivery, Refusal, StampId, SubmitReply, SubmitRequest,
    },
    mesh::Name,
};
use tokio::time::{sleep, timeout};

/// The maximum number of bytes of receipts in one request, well below its limit.
const BYTES: usize = 160 << 10;

/// The initial and the maximum pause between attempts: a destination that was down for a night is reached within half a
/// minute.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The time for one request and its reply: two round trips and a sync of a very slow disk.
const PATIENCE: Duration = Duration::from_secs(30);

impl ServiceState {
    /// Delivers the receipts of a box to its destination as they are given; never returns.
    pub(super) async fn deliver_receipts(&self, served: &ServedBox) {
        let Some(spool) = &served.spool else { return };
        let mut pause = PAUSE.0;
        loop {
            let untold = spool.undelivered_receipts(MOST_DELIVERIES, BYTES);
            if untold.is_empty() {
                pause = PAUSE.0;
                spool.news.notified().await;
                continue;
            }
            match self.send_receipts(served, spool, untold).await {
                Ok(()) => pause = PAUSE.0,
                Err(why) => {
                    let event = Event::new("receipts_not_told").with("box", &served.name);
                    self.log.put(event.with("why", why));
                    sleep(pause).await;
                    pause = (2 * pause).min(PAUSE.1);
                }
            }
        }
    }

    async fn send_receipts(
        &self,
        served: &ServedBox,
        spool: &Spool,
        untold: Vec<(StampId, ReceiptDelivery)>,
    ) -> Result<(), String> {
        let (ids, deliveries): (Vec<_>, Vec<_>) = untold.into_iter().unzip();
        let answers = match &served.role {
            BoxRole::Destination(_) => {
                let me = DeliveringNode { name: self.me.clone(), key: self.key.id() };
                self.store_receipts(&me, deliveries).await.map_err(|e| e.to_string())?
            }
            BoxRole::Node(destination) => self.ask_destination(destination, deliveries).await?,
        };
        if answers.len() != ids.len() {
            return Err("the destination's answer is for other receipts".into());
        }
        // Receipts that it will never accept are not sent again.
        let (mut told, mut denied) = (Vec::new(), Vec::new());
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                Ok(()) => told.push(id),
                Err(denial) => denied.push((id, denial)),
            }
        }
        if !denied.is_empty() {
            let first = self.check_denials(served, &denied)?;
            let event = Event::new("receipts_refused").with("box", &served.name);
            self.log.put(event.with("why", first).with_number("count", denied.len() as u64));
            spool.record_denials(denied).await.map_err(|e| e.to_string())?;
        }
        match told.is_empty() {
            true => Ok(()),
            false => spool.record_delivered(told).await.map_err(|e| e.to_string()),
        }
    }

    /// Checks that all these denials are signed by the destination and are for these receipts. Returns the first one,
    /// for the log.
    fn check_denials(
        &self,
        served: &ServedBox,
        all: &[(StampId, Vec<u8>)],
    ) -> Result<Refusal, String> {
        let none = || "the destination is not in the roster".to_owned();
        let destination = self.destination_of(served).ok_or_else(none)?;
        let read =
            |(id, denial): &(StampId, Vec<u8>)| Denial::read(denial, &destination, &id.0, &Ed25519);
        let mut read = all.iter().map(read);
        let first = read.next().unwrap_or_else(|| Err(none()))?;
        read.try_for_each(|result| result.map(drop))?;
        Ok(first)
    }

    async fn ask_destination(
        &self,
        destination: &Name,
        deliveries: Vec<ReceiptDelivery>,
    ) -> Result<Vec<Result<(), Vec<u8>>>, String> {
        let roster = self.membership.current();
        let member = roster.as_ref().and_then(|roster| roster.by_name(destination));
        let port = member.and_then(NodeAddress::of_member);
        let port = port.ok_or_else(|| format!("node `{destination}` is not in the roster"))?;
        let asked = async {
            let mut line = NodeChannel::open(&self.connector, &port).await?;
            let answer = line.ask(&SubmitRequest::Deliver(deliveries)).await?;
            line.close().await;
            Ok::<_, super::NodeChannelError>(answer)
        };
        match timeout(PATIENCE, asked)
            .await
            .map_err(|_| format!("no answer within {PATIENCE:?}"))?
        {
            Ok(SubmitReply::Delivered(answers)) => Ok(answers),
            Ok(SubmitReply::Refused(refusal)) => Err(refusal.to_string()),
            Ok(_) => Err("the destination's answer does not match the request".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}
