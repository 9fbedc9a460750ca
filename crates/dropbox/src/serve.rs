//! The serving side: replies to the requests on `submit` channels that arrive at the node's port.

use super::{
    ServiceState,
    receipts::{DeliveringNode, VerifiedReceipt},
    served_box::ServedBox,
    spool::{Push, push},
};
use futures_util::future::BoxFuture;
use std::{
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use thalweg_base::{
    budget::PeerKey,
    costly::{self, Turn},
    log::Event,
    message,
    peer_source::source_of,
    timeout::within,
};
use thalweg_mesh::{MeshPeer, service::SubmitService};
use thalweg_net::{Ed25519, channel::Channel};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        Denial, Intent, MAX_SUBMIT_REQUEST, MOST_DELIVERIES, MOST_INTENTS, Nonce, ReceiptDelivery,
        Refusal, Stamp, StampId, StrikeReply, StrikeRequest, SubmitReply, SubmitRequest,
    },
    mesh::{ApiError, Member, Name},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::yield_now,
};

/// A channel without a request for this long is closed: a client sends its requests one after the other.
const IDLE: Duration = Duration::from_secs(60);

/// A stranger's channel is closed unless its first request arrives within this time: five round trips of the slowest
/// path.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a stranger's first request: eight commitments or one stamp. Once a request is accepted,
/// later ones may be longer.
const MAX_FIRST_REQUEST: usize = 4 << 10;

/// The client of a channel.
struct Caller {
    key: NodeId,
    member: Option<Member>,
    from: IpAddr,
    /// The party to which memory, turns and room are charged.
    party: PeerKey,
}

/// Data that the client may send.
struct AcceptedPush {
    drop_box: Name,
    push: Push,
}

impl SubmitService for super::DropBoxes {
    fn admits(&self, key: &NodeId) -> bool {
        self.0.boxes.values().any(|served| served.submitters.admits(key))
    }

    fn report(&self) -> serde_json::Value {
        self.full_report()
    }

    fn strike(&self, request: StrikeRequest) -> BoxFuture<'_, Result<StrikeReply, ApiError>> {
        let failed = |refusal: Refusal| ApiError {
            code: "drop_box".to_owned(),
            message: refusal.to_string(),
        };
        Box::pin(async move { self.0.strike(request).await.map_err(failed) })
    }

    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: Option<MeshPeer>,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let revoked = async {
                match &peer {
                    Some(peer) => peer.revoked().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = revoked => {}
                ended = shared.serve_channel(channel, peer.as_ref(), from) => shared.log_end(from, ended),
            }
        })
    }
}

impl ServiceState {
    /// Answers the requests of a channel until the client closes it.
    async fn serve_channel(
        &self,
        mut channel: Channel<TcpStream>,
        peer: Option<&MeshPeer>,
        from: SocketAddr,
    ) -> io::Result<()> {
        self.counts.channels.inc();
        let member = peer.map(|peer| peer.member().clone());
        let party = match &member {
            Some(member) => PeerKey::Node(member.principal()),
            None => PeerKey::Address(source_of(from.ip())),
        };
        let mut is_known = member.is_some();
        let caller = Caller { key: channel.peer(), member, from: from.ip(), party };
        loop {
            let (most, time) = if is_known {
                (MAX_SUBMIT_REQUEST, IDLE)
            } else {
                (MAX_FIRST_REQUEST, FIRST_REQUEST_TIMEOUT)
            };
            let asked = message::read_charged::<SubmitRequest>(&mut channel, most, party);
            match within(time, "question", asked).await? {
                Some((ask, _charge)) => {
                    let turn = self.request_turns.turn(party).await;
                    is_known |= self.answer(&mut channel, &caller, ask, turn).await?;
                    // One poll would answer many requests that are buffered.
                    yield_now().await;
                }
                None => return channel.shutdown().await,
            }
        }
    }

    /// Replies to a request once it is the client's turn. Returns whether this caller was allowed to send it.
    async fn answer<IO>(
        &self,
        channel: &mut IO,
        caller: &Caller,
        ask: SubmitRequest,
        turn: Turn,
    ) -> io::Result<bool>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let said = match ask {
            SubmitRequest::Push { stamp, nonce, bytes } => {
                match self.check_push(caller, &stamp, nonce, bytes) {
                    Ok(wanted) => {
                        drop(turn);
                        return self.receive_push(channel, wanted).await.map(|()| true);
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            SubmitRequest::Sheet(name) => self.sheet(caller, &name),
            SubmitRequest::Commit(name, intents) => self.commit(caller, &name, intents).await,
            SubmitRequest::Load(name) => self.load(caller, &name),
            SubmitRequest::Deliver(deliveries) => self.deliver(caller, deliveries).await,
            SubmitRequest::Forget(name, ids) => self.forget(caller, &name, ids).await,
        };
        let said = said.unwrap_or_else(SubmitReply::Refused);
        self.counts.refused.inc_by(match &said {
            SubmitReply::Refused(_) => 1,
            SubmitReply::Stamps(stamps) => {
                stamps.iter().filter(|stamp| stamp.is_err()).count() as u64
            }
            _ => 0,
        });
        drop(turn);
        message::write(channel, &said).await?;
        Ok(!matches!(said, SubmitReply::Refused(_)))
    }

    pub(super) fn find_box(&self, name: &Name) -> Result<&ServedBox, Refusal> {
        self.boxes.get(name).ok_or_else(|| Refusal::NoBox(name.clone()))
    }

    /// Returns the box if this caller may submit to it. A stranger that may not submit gets the same reply as for a box
    /// that does not exist; a member is told that it is not admitted.
    fn accessible_box(&self, caller: &Caller, name: &Name) -> Result<&ServedBox, Refusal> {
        let served = self.find_box(name)?;
        match served.submitters.allows(&caller.key, caller.member.is_some()) {
            true => Ok(served),
            false if caller.member.is_none() => Err(Refusal::NoBox(name.clone())),
            false => Err(Refusal::NotAdmitted),
        }
    }

    fn sheet(&self, caller: &Caller, name: &Name) -> Result<SubmitReply, Refusal> {
        let records = self.accessible_box(caller, name)?.records()?;
        let roster = self.membership.current();
        let sheet = Signed::sign(records.sheet(roster.as_deref()), &*self.key);
        Ok(SubmitReply::Sheet(sheet.encode()))
    }

    async fn commit(
        &self,
        caller: &Caller,
        name: &Name,
        intents: Vec<Intent>,
    ) -> Result<SubmitReply, Refusal> {
        let served = self.accessible_box(caller, name)?;
        let records = served.records()?;
        if intents.len() > MOST_INTENTS {
            let why = format!(
                "{} commitments at once; at most {MOST_INTENTS} are allowed",
                intents.len()
            );
            return Err(Refusal::Forged(why));
        }
        served.rate_limit.take(caller.from, intents.len())?;
        let commitments: Vec<_> = intents.iter().map(|intent| intent.commitment).collect();
        let stamps = records.ledger.commit((caller.key, caller.party), intents).await;
        let denied = |(stamp, commitment): (Result<Vec<u8>, Refusal>, _)| {
            stamp.map_err(|why| self.denial(Denial::for_commitment(commitment, why)))
        };
        Ok(SubmitReply::Stamps(stamps.into_iter().zip(&commitments).map(denied).collect()))
    }

    fn denial(&self, denial: Denial) -> Vec<u8> {
        Signed::sign(denial, &*self.key).encode()
    }

    fn load(&self, caller: &Caller, name: &Name) -> Result<SubmitReply, Refusal> {
        Ok(SubmitReply::Load(self.accessible_box(caller, name)?.spool()?.load()))
    }

    /// Checks whether the client may send the data of this stamp.
    fn check_push(
        &self,
        caller: &Caller,
        stamp: &[u8],
        nonce: Nonce,
        bytes: u64,
    ) -> Result<AcceptedPush, Refusal> {
        let stamp: Signed<Stamp> =
            Signed::open(stamp, &Ed25519).map_err(|e| Refusal::Forged(e.to_string()))?;
        let served = self.accessible_box(caller, &stamp.value().drop_box)?;
        served.spool()?;
        if served.records().is_ok_and(|records| records.ledger.is_struck(stamp.value())) {
            return Err(Refusal::NotAdmitted);
        }
        served.check(&stamp, self.destination_of(served), &caller.key, bytes)?;
        served.rate_limit.take(caller.from, 1)?;
        Ok(AcceptedPush { drop_box: served.name.clone(), push: Push { stamp, nonce } })
    }

    /// The key of the destination's node.
    pub(super) fn destination_of(&self, served: &ServedBox) -> Option<NodeId> {
        match &served.role {
            super::served_box::BoxRole::Destination(_) => Some(self.key.id()),
            super::served_box::BoxRole::Node(name) => {
                self.membership.current().as_ref()?.by_name(name)?.node
            }
        }
    }

    async fn receive_push<IO>(&self, channel: &mut IO, wanted: AcceptedPush) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Ok(spool) = self.find_box(&wanted.drop_box).and_then(ServedBox::spool) else {
            return Ok(());
        };
        push(spool, channel, wanted.push).await
    }

    /// Accepts receipts from a node of the box.
    async fn deliver(
        &self,
        caller: &Caller,
        deliveries: Vec<ReceiptDelivery>,
    ) -> Result<SubmitReply, Refusal> {
        let member = caller.member.as_ref().filter(|member| member.node == Some(caller.key));
        let member = member.ok_or(Refusal::NotAdmitted)?;
        let sender = DeliveringNode { name: member.name.clone(), key: caller.key };
        if deliveries.len() > MOST_DELIVERIES {
            return Err(Refusal::Forged("too many receipts at once".into()));
        }
        let answers = self.store_receipts(&sender, deliveries).await?;
        Ok(SubmitReply::Delivered(answers))
    }

    /// Stores receipts. For receipts that will never be accepted it returns denials (signed refusals). Signatures are
    /// checked off the async runtime, because 500 of them take tens of milliseconds.
    pub(super) async fn store_receipts(
        &self,
        sender: &DeliveringNode,
        deliveries: Vec<ReceiptDelivery>,
    ) -> Result<Vec<Result<(), Vec<u8>>>, Refusal> {
        let id = |delivery: &ReceiptDelivery| StampId::from_encoded(&delivery.stamp);
        let ids: Vec<StampId> = deliveries.iter().map(id).collect();
        let reading = move || deliveries.iter().map(VerifiedReceipt::read).collect::<Vec<_>>();
        let read = costly::run(PeerKey::Node(sender.key), reading).await;
        let read = read.map_err(|e| Refusal::Unable(format!("check the receipts: {e}")))?;
        let mut answers = Vec::with_capacity(read.len());
        // Consecutive receipts of one box are kept together.
        for same in read.chunk_by(|a, b| box_of_receipt(a) == box_of_receipt(b)) {
            answers.extend(self.store_in_box(sender, same).await?);
        }
        let denied = |(kept, id): (Result<(), Refusal>, _)| {
            kept.map_err(|why| self.denial(Denial::for_stamp(id, why)))
        };
        Ok(answers.into_iter().zip(ids).map(denied).collect())
    }

    async fn store_in_box(
        &self,
        sender: &DeliveringNode,
        arrivals: &[Result<VerifiedReceipt, Refusal>],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let never = |refusal: Refusal| Ok(vec![Err(refusal); arrivals.len()]);
        let Some(name) = arrivals.first().and_then(box_of_receipt) else {
            return Ok(arrivals.iter().map(|read| read.clone().map(drop)).collect());
        };
        match self.find_box(name).and_then(ServedBox::records) {
            Ok(records) if records.nodes.contains(&sender.name) => {
                records.store(sender, arrivals).await
            }
            Ok(_) => never(Refusal::Forged(format!("`{}` is not a node of this box", sender.name))),
            Err(refusal) => never(refusal),
        }
    }

    /// Strikes submissions at the destination, and deletes their data on this node. The command that requests this also
    /// requests the deletion at the other nodes.
    async fn strike(&self, request: StrikeRequest) -> Result<StrikeReply, Refusal> {
        let served = self.find_box(&request.drop_box)?;
        let struck = served.records()?.ledger.strike(&request.numbers, &request.keys).await;
        let struck = struck.map_err(|e| Refusal::Unable(format!("record the strike: {e}")))?;
        let bytes = struck.iter().map(|stamp| stamp.commitment.size).sum();
        let reply = StrikeReply { submissions: struck.len() as u64, bytes };
        if let Some(spool) = &served.spool {
            let id = |stamp: Stamp| StampId::from_stamp(&Signed::sign(stamp, &*self.key));
            spool.delete(struck.into_iter().map(id).collect()).await?;
        }
        Ok(reply)
    }

    /// Deletes collected data at the request of the destination, which may use the key of its node or that of its
    /// command line.
    async fn forget(
        &self,
        caller: &Caller,
        name: &Name,
        ids: Vec<StampId>,
    ) -> Result<SubmitReply, Refusal> {
        let served = self.find_box(name)?;
        let destination = match &served.role {
            super::served_box::BoxRole::Destination(_) => &self.me,
            super::served_box::BoxRole::Node(name) => name,
        };
        match caller.member.as_ref().is_some_and(|member| member.name == *destination) {
            true => Ok(SubmitReply::Forgot(served.spool()?.delete(ids).await?)),
            false => Err(Refusal::NotAdmitted),
        }
    }

    /// Logs the end of a channel, at a limited rate because strangers can cause it.
    fn log_end(&self, from: SocketAddr, ended: io::Result<()>) {
        let Err(e) = ended else { return };
        if let Some(more) = self.ends.pass(std::time::Instant::now()) {
            let event = Event::new("submit_ended").with("client", from).with("why", e);
            self.log.put(event.with("unlogged", more));
        }
    }
}

/// The box of a receipt's stamp, if the receipt is valid.
fn box_of_receipt(read: &Result<VerifiedReceipt, Refusal>) -> Option<&Name> {
    read.as_ref().ok().map(|arrival| &arrival.stamp.value().drop_box)
}
