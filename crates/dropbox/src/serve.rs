//! The serving side: channels `submit` as they come to the node's port.

use super::{
    Shared,
    arrivals::Bringer,
    one_box::OneBox,
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
use thalweg_base::timeout::within;
use thalweg_base::{log::Event, message};
use thalweg_mesh::{MeshPeer, service::SubmitService};
use thalweg_net::{Ed25519, channel::Channel};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        Answer, Ask, Delivery, Intent, MAX_ASK, MOST_DELIVERIES, MOST_INTENTS, Nonce, Refusal,
        Stamp, StampId,
    },
    mesh::{Member, Name},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

/// A channel without a question for so long is closed: a client has all that it asks at hand.
const IDLE: Duration = Duration::from_secs(60);

/// Who asks.
struct Caller {
    key: NodeId,
    member: Option<Member>,
    from: IpAddr,
}

/// The data of a stamp is about to come.
struct Wanted {
    drop_box: Name,
    push: Push,
}

impl SubmitService for super::DropBoxes {
    fn admits(&self, key: &NodeId) -> bool {
        self.0.boxes.values().any(|one| one.who.admits(key))
    }

    fn report(&self) -> serde_json::Value {
        self.tell_report()
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
                ended = shared.listen(channel, peer.as_ref(), from) => shared.tell(from, ended),
            }
        })
    }
}

impl Shared {
    /// Answers what is asked on a channel until its goodbye.
    async fn listen(
        &self,
        mut channel: Channel<TcpStream>,
        peer: Option<&MeshPeer>,
        from: SocketAddr,
    ) -> io::Result<()> {
        self.counts.channels.inc();
        let Some(_place) = self.places.enter(from.ip()) else {
            self.counts.busy.inc();
            return Err(io::Error::other("too many channels at a time"));
        };
        let member = peer.map(|peer| peer.member().clone());
        let caller = Caller { key: channel.peer(), member, from: from.ip() };
        loop {
            let asked = message::read::<Ask>(&mut channel, MAX_ASK);
            match within(IDLE, "question", asked).await? {
                Some(ask) => self.answer(&mut channel, &caller, ask).await?,
                None => return channel.shutdown().await,
            }
        }
    }

    async fn answer<IO>(&self, channel: &mut IO, caller: &Caller, ask: Ask) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let said = match ask {
            Ask::Push { stamp, nonce, bytes } => match self.wanted(caller, &stamp, nonce, bytes) {
                Ok(wanted) => return self.take(channel, wanted).await,
                Err(refusal) => Err(refusal),
            },
            Ask::Sheet(name) => self.sheet(caller, &name),
            Ask::Commit(name, intents) => self.commit(caller, &name, intents).await,
            Ask::Load(name) => self.load(caller, &name),
            Ask::Deliver(deliveries) => self.deliver(caller, deliveries).await,
            Ask::Forget(name, ids) => self.forget(caller, &name, ids).await,
        };
        let said = said.unwrap_or_else(Answer::Refused);
        self.counts.refused.inc_by(match &said {
            Answer::Refused(_) => 1,
            Answer::Stamps(stamps) => stamps.iter().filter(|stamp| stamp.is_err()).count() as u64,
            _ => 0,
        });
        message::write(channel, &said).await
    }

    pub(super) fn one(&self, name: &Name) -> Result<&OneBox, Refusal> {
        self.boxes.get(name).ok_or_else(|| Refusal::NoBox(name.clone()))
    }

    /// The box, if this caller may submit to it. To others a box that is there looks like none
    /// only if they came as strangers to another one.
    fn open_to(&self, caller: &Caller, name: &Name) -> Result<&OneBox, Refusal> {
        let one = self.one(name)?;
        match one.who.may(&caller.key, caller.member.is_some()) {
            true => Ok(one),
            false if caller.member.is_none() => Err(Refusal::NoBox(name.clone())),
            false => Err(Refusal::NotAdmitted),
        }
    }

    fn sheet(&self, caller: &Caller, name: &Name) -> Result<Answer, Refusal> {
        let books = self.open_to(caller, name)?.books()?;
        let roster = self.membership.current();
        let sheet = Signed::sign(books.sheet(roster.as_deref()), &*self.key);
        Ok(Answer::Sheet(sheet.encode()))
    }

    async fn commit(
        &self,
        caller: &Caller,
        name: &Name,
        intents: Vec<Intent>,
    ) -> Result<Answer, Refusal> {
        let one = self.open_to(caller, name)?;
        let books = one.books()?;
        if intents.len() > MOST_INTENTS {
            let why = format!("{} commitments at once; {MOST_INTENTS} can be", intents.len());
            return Err(Refusal::Forged(why));
        }
        one.pace.take(caller.from, intents.len())?;
        Ok(Answer::Stamps(books.ledger.commit(caller.key, intents).await))
    }

    fn load(&self, caller: &Caller, name: &Name) -> Result<Answer, Refusal> {
        Ok(Answer::Load(self.open_to(caller, name)?.spool()?.load()))
    }

    /// Whether data may come.
    fn wanted(
        &self,
        caller: &Caller,
        stamp: &[u8],
        nonce: Nonce,
        bytes: u64,
    ) -> Result<Wanted, Refusal> {
        let stamp: Signed<Stamp> =
            Signed::open(stamp, &Ed25519).map_err(|e| Refusal::Forged(e.to_string()))?;
        let one = self.open_to(caller, &stamp.value().drop_box)?;
        one.spool()?;
        one.check(&stamp, self.destination_of(one), &caller.key, bytes)?;
        one.pace.take(caller.from, 1)?;
        Ok(Wanted { drop_box: one.name.clone(), push: Push { stamp, nonce } })
    }

    /// The key of the destination's node.
    fn destination_of(&self, one: &OneBox) -> Option<NodeId> {
        match &one.part {
            super::one_box::Part::Destination(_) => Some(self.key.id()),
            super::one_box::Part::Node(name) => {
                self.membership.current().as_ref()?.by_name(name)?.node
            }
        }
    }

    async fn take<IO>(&self, channel: &mut IO, wanted: Wanted) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Ok(spool) = self.one(&wanted.drop_box).and_then(OneBox::spool) else { return Ok(()) };
        push(spool, channel, wanted.push).await
    }

    /// Receipts, by a node of the box.
    async fn deliver(&self, caller: &Caller, deliveries: Vec<Delivery>) -> Result<Answer, Refusal> {
        let member = caller.member.as_ref().filter(|member| member.node == Some(caller.key));
        let member = member.ok_or(Refusal::NotAdmitted)?;
        let bringer = Bringer { name: member.name.clone(), key: caller.key };
        if deliveries.len() > MOST_DELIVERIES {
            return Err(Refusal::Forged("too many receipts at once".into()));
        }
        let mut answers = Vec::with_capacity(deliveries.len());
        // Those of one box, one behind the other, are kept at once.
        for same in deliveries.chunk_by(|a, b| box_of(a) == box_of(b)) {
            answers.extend(self.keep(&bringer, same).await?);
        }
        Ok(Answer::Delivered(answers))
    }

    pub(super) async fn keep(
        &self,
        bringer: &Bringer,
        deliveries: &[Delivery],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let never = |refusal: Refusal| Ok(vec![Err(refusal); deliveries.len()]);
        let Some(name) = deliveries.first().and_then(box_of) else {
            return never(Refusal::Forged("the stamp is not readable".into()));
        };
        match self.one(&name).and_then(OneBox::books) {
            Ok(books) if books.nodes.contains(&bringer.name) => {
                books.arrivals.keep(bringer, deliveries).await
            }
            Ok(_) => never(Refusal::NotAdmitted),
            Err(refusal) => never(refusal),
        }
    }

    /// By the destination, on whichever of its two keys.
    async fn forget(
        &self,
        caller: &Caller,
        name: &Name,
        ids: Vec<StampId>,
    ) -> Result<Answer, Refusal> {
        let one = self.one(name)?;
        let destination = match &one.part {
            super::one_box::Part::Destination(_) => &self.me,
            super::one_box::Part::Node(name) => name,
        };
        match caller.member.as_ref().is_some_and(|member| member.name == *destination) {
            true => Ok(Answer::Forgot(one.spool()?.forget(ids).await?)),
            false => Err(Refusal::NotAdmitted),
        }
    }

    /// Ends that strangers can cause are few lines.
    fn tell(&self, from: SocketAddr, ended: io::Result<()>) {
        let Err(e) = ended else { return };
        if let Some(more) = self.ends.pass(std::time::Instant::now()) {
            let event = Event::new("submit_ended").with("client", from).with("why", e);
            self.log.put(event.with("unlogged", more));
        }
    }
}

/// The box of a delivery's stamp; its signature is checked later.
fn box_of(delivery: &Delivery) -> Option<Name> {
    let stamp: Signed<Stamp> = Signed::open(&delivery.stamp, &Ed25519).ok()?;
    Some(stamp.value().drop_box.clone())
}
