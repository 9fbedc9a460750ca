//! One member's channel: reads requests and answers them one after the other.

use super::{
    Requester, ServiceState, delivery,
    list::Listing,
    read::FileReading,
    sender::{self, Buffers, DataSource, message, wait_until_closed},
    slots::Slot,
    spool::Visit,
    store::{PartialFile, ReceivedPiece},
};
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::PeerKey,
    costly,
    log::Event,
    request_memory::{self, Body, Charge},
    timeout,
};
use thalweg_mesh::MeshPeer;
use thalweg_net::channel::Channel;
use thalweg_wire::mesh::Member;
use thalweg_wire::object::{
    self, Delivery, Failure, Keep, ListRequest, MAX_REPLY, MAX_REQUEST, MAX_STORE, Owners, Reply,
    Request, Rules, TransferHash, TransferHashes,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::{JoinError, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// A channel without a byte in either direction for this long is closed, and its slot is freed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A request must be complete within this time after its first bytes, since it holds its slot: 1 MiB at 70 kbit/s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a request without a slot is read and discarded, so that its peer receives the refusal.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a channel without a slot may wait before its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval of [`Reply::Wait`] messages while a peer waits for the disk.
const WAIT_INTERVAL: Duration = Duration::from_secs(15);

/// The size of the buffer that unwanted file bytes are read into.
const DRAIN_BUFFER: usize = 64 << 10;

/// The size of the buffer that a request without a slot is read into.
const DISCARD_BUFFER: usize = 4 << 10;

/// Longer requests are decoded off the async runtime.
const MAX_DECODED_INLINE: usize = 16 << 10;

/// The state of one channel.
#[derive(Debug)]
pub(super) struct Session {
    pub shared: Arc<ServiceState>,
    pub channel: Channel<TcpStream>,
    pub peer: MeshPeer,
    /// Present after the first request about spooled data.
    pub visit: Option<Visit>,
    /// The file that was written last, kept open for its next part.
    partial_file: Option<Arc<PartialFile>>,
    buffers: Buffers,
    requests: u64,
    failed: u64,
    sent: u64,
    received: u64,
}

/// Serves one channel to its end. The channel is cut at once when the peer is revoked.
pub(super) async fn serve(
    shared: Arc<ServiceState>,
    channel: Channel<TcpStream>,
    peer: MeshPeer,
    from: SocketAddr,
) {
    let began = Instant::now();
    let mut session = Session {
        shared,
        channel,
        peer: peer.clone(),
        visit: None,
        partial_file: None,
        buffers: Buffers::default(),
        requests: 0,
        failed: 0,
        sent: 0,
        received: 0,
    };
    let ended = peer.unless_revoked(session.run()).await;
    let ended = ended.unwrap_or_else(|revoked| Err(revoked.into()));
    session.log_end(from, began, ended);
}

impl Session {
    async fn run(&mut self) -> io::Result<()> {
        let mut slot = self.shared.slots.take(&self.peer.member().name);
        while let Some(length) = self.next_length(slot.as_ref()).await? {
            self.requests += 1;
            self.shared.counts.requests.inc();
            if !slot.as_ref().is_some_and(Slot::set_busy) {
                slot = self.shared.slots.wait(&self.peer.member().name).await;
            }
            if !slot.as_ref().is_some_and(Slot::set_busy) {
                self.shared.counts.busy.inc();
                self.discard(length).await?;
                self.reply(&Reply::Failed(Failure::Busy)).await?;
                break;
            }
            // The memory is charged until the request is answered.
            let (request, _charge) = self.request(length).await?;
            self.answer(request).await?;
        }
        within(self.channel.shutdown()).await
    }

    /// The length of the next request; `None` if the peer ends the channel or another channel took the slot. Without a
    /// slot it reads only this length.
    async fn next_length(&mut self, slot: Option<&Slot>) -> io::Result<Option<usize>> {
        let Some(slot) = slot else {
            // A slot would make this channel the one that is idle longest, so channels with a request come first.
            let asked = tokio::time::timeout(FIRST_REQUEST_TIMEOUT, self.head()).await;
            return asked.unwrap_or(Ok(None));
        };
        slot.set_idle();
        tokio::select! {
            biased;
            length = self.head() => length,
            () = slot.lost() => Ok(None),
        }
    }

    async fn answer(&mut self, request: Request) -> io::Result<()> {
        let Some(requester) = self.requester() else {
            return Err(io::Error::other("the peer is no longer a member"));
        };
        match request {
            Request::List(request) => self.list(requester, request, None).await,
            Request::Describe(request, keep) => self.list(requester, request, Some(keep)).await,
            Request::Read(part) => self.read(FileReading::new(requester, vec![part])).await,
            Request::ReadParts(parts) => self.read(FileReading::new(requester, parts)).await,
            Request::ReadAll(files) => self.read(FileReading::whole(requester, files)).await,
            Request::Check(files) => self.read(FileReading::hashes(requester, files)).await,
            Request::CheckParts(parts) => self.read(FileReading::hashes_of(requester, parts)).await,
            Request::Store { into, entry, from, bytes, check } => {
                let Some(body) = self.read_bytes(&requester, &into, bytes).await? else {
                    return Ok(());
                };
                let Body { bytes, charge: _charge } = body;
                let rules = Rules::default();
                let piece = ReceivedPiece { into, entry, rules, from, bytes, check };
                self.store(requester, piece, Owners::default()).await
            }
            Request::StorePart { into, entry, rules, owners, from, bytes, check } => {
                let Some(body) = self.read_bytes(&requester, &into, bytes).await? else {
                    return Ok(());
                };
                let Body { bytes, charge: _charge } = body;
                let entry = entry.0;
                self.store(
                    requester,
                    ReceivedPiece { into, entry, rules, from, bytes, check },
                    owners,
                )
                .await
            }
            Request::Held { into, entry } => {
                let held = move || requester.shared.inbox.stored_ranges(&requester, &into, &entry);
                let held = self.wait_for(spawn_blocking(held)).await?;
                self.reply(&held.map_or_else(Reply::Failed, Reply::Held)).await
            }
            Request::Compare(delivery, checks) => self.compare(requester, delivery, checks).await,
            Request::Put { delivery, bytes, check } => {
                self.put(requester, delivery, bytes, check).await
            }
            Request::Dress(mut delivery) => {
                let applying = move || {
                    delivery::localize(&requester, &mut delivery)?;
                    delivery::apply_metadata(&requester.shared.inbox, &requester, &delivery)
                };
                let dressed = self.wait_for(spawn_blocking(applying)).await?;
                let dressed = dressed.map(|(undone, wider)| Reply::Dressed { undone, wider });
                self.reply(&dressed.unwrap_or_else(Reply::Failed)).await
            }
            Request::Clear(surplus) => {
                let stop = CancellationToken::new();
                let _stopped = stop.clone().drop_guard();
                let clearing = move || delivery::clear(&requester, &surplus, &stop);
                let cleared = self.wait_for(spawn_blocking(clearing)).await?;
                self.reply(&cleared.map_or_else(Reply::Failed, Reply::Cleared)).await
            }
            Request::Link(links) => {
                let linking = move || delivery::link(&requester.shared.inbox, &requester, &links);
                let linked = self.wait_for(spawn_blocking(linking)).await?;
                let linked = linked.map(|(present, undone)| Reply::Linked { present, undone });
                self.reply(&linked.unwrap_or_else(Reply::Failed)).await
            }
            other => self.exchange(other).await,
        }
    }

    /// Answers a listing. Patterns are compiled off the async runtime, in a turn of the peer.
    async fn list(
        &mut self,
        requester: Requester,
        request: ListRequest,
        keep: Option<Keep>,
    ) -> io::Result<()> {
        let peer_key = peer_key(&requester.member);
        let compiling = costly::run(peer_key, move || Listing::new(requester, request, keep));
        match self.wait_for(compiling).await? {
            Ok(listing) => self.send_source(listing).await.map(drop),
            Err(why) => self.reply(&Reply::Failed(why)).await,
        }
    }

    async fn read(&mut self, reading: FileReading) -> io::Result<()> {
        let reading = self.send_source(reading).await?;
        self.count_failed(reading.results.iter().filter(|result| result.is_err()).count());
        Ok(())
    }

    async fn store(
        &mut self,
        requester: Requester,
        mut piece: ReceivedPiece,
        mut owners: Owners,
    ) -> io::Result<()> {
        let storing = move || {
            let ReceivedPiece { into, entry, rules, .. } = &mut piece;
            delivery::localize_one(&requester, into, *rules, &mut owners, entry)?;
            requester.shared.inbox.store(&requester, &piece)
        };
        let reply = match self.wait_for(spawn_blocking(storing)).await? {
            Ok(partial_file) => {
                if partial_file.is_none() {
                    self.shared.counts.stored.inc();
                }
                self.partial_file = partial_file;
                Reply::Stored
            }
            Err(why) => Reply::Failed(why),
        };
        self.reply(&reply).await
    }

    async fn compare(
        &mut self,
        requester: Requester,
        mut delivery: Delivery,
        TransferHashes(checks): TransferHashes,
    ) -> io::Result<()> {
        let stop = CancellationToken::new();
        let _stopped = stop.clone().drop_guard();
        let is_long = delivery.rules.has(Rules::WHOLE) && !checks.is_empty();
        let turn = is_long.then(|| self.shared.hashing.for_member(&requester.member.name));
        let comparing = async move {
            let turn = match turn {
                Some(turn) => Some(turn.lock_owned().await),
                None => None,
            };
            let compare = move || {
                let _turn = turn;
                delivery::localize(&requester, &mut delivery)?;
                delivery::compare(&requester.shared.inbox, &requester, &delivery, &checks, &stop)
            };
            spawn_blocking(compare).await
        };
        let compared = self.wait_for(comparing).await?;
        self.reply(&compared.map_or_else(Reply::Failed, Reply::Compared)).await
    }

    async fn put(
        &mut self,
        requester: Requester,
        mut delivery: Delivery,
        bytes: u64,
        check: TransferHash,
    ) -> io::Result<()> {
        let Some(body) = self.read_bytes(&requester, &delivery.into, bytes).await? else {
            return Ok(());
        };
        let Body { bytes, charge: _charge } = body;
        let putting = move || {
            if *blake3::hash(&bytes).as_bytes() != check.0 {
                return Err(Failure::System(
                    "the bytes do not match their hash; send them again".into(),
                ));
            }
            delivery::localize(&requester, &mut delivery)?;
            delivery::put(&requester.shared.inbox, &requester, &delivery, &bytes)
        };
        let reply = match self.wait_for(spawn_blocking(putting)).await? {
            Ok((stored, undone)) => {
                self.shared.counts.stored.inc_by(stored);
                self.count_failed(undone.failures().count());
                Reply::Delivered(undone)
            }
            Err(why) => Reply::Failed(why),
        };
        self.reply(&reply).await
    }

    /// Runs work that may wait for a disk and tells the peer regularly that it is in progress. Returns an error if the
    /// peer leaves, which stops the work where possible.
    pub(super) async fn wait_for<T>(
        &mut self,
        work: impl Future<Output = Result<T, JoinError>>,
    ) -> io::Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.map_err(io::Error::other),
                () = wait_until_closed(self.channel.get_ref()) => return Err(io::ErrorKind::BrokenPipe.into()),
                () = sleep(WAIT_INTERVAL) => self.reply(&Reply::Wait).await?,
            }
        }
    }

    /// Waits for memory and tells the peer regularly that it waits.
    async fn wait_for_memory<T>(
        &mut self,
        charging: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut charging = pin!(charging);
        loop {
            tokio::select! {
                biased;
                done = &mut charging => return done,
                () = sleep(WAIT_INTERVAL) => self.reply(&Reply::Wait).await?,
            }
        }
    }

    /// Reads and discards this many bytes.
    async fn drain(&mut self, count: u64) -> io::Result<()> {
        check_length(count)?;
        let mut left = count as usize;
        let mut buffer = vec![0; left.min(DRAIN_BUFFER)];
        while left > 0 {
            let some = left.min(DRAIN_BUFFER);
            within(self.channel.read_exact(&mut buffer[..some])).await?;
            left -= some;
        }
        Ok(())
    }

    /// Reads this many bytes for a directory, charged to the peer; `None` if the peer may not write there and was told
    /// so. Rights are checked first, so that a peer without rights takes no memory.
    async fn read_bytes(
        &mut self,
        requester: &Requester,
        into: &[u8],
        count: u64,
    ) -> io::Result<Option<Body>> {
        check_length(count)?;
        if let Err(why) = requester.offers().writable(&requester.member, into) {
            self.drain(count).await?;
            self.reply(&Reply::Failed(why)).await?;
            return Ok(None);
        }
        let peer_key = peer_key(&requester.member);
        let begun = within(request_memory::begin(&mut self.channel, count as usize)).await?;
        let charge = self.wait_for_memory(begun.charge_bytes(peer_key)).await?;
        let body = within(begun.finish(&mut self.channel, charge)).await?;
        self.received += count;
        self.shared.counts.received.inc_by(count);
        Ok(Some(body))
    }

    fn count_failed(&mut self, count: usize) {
        self.failed += count as u64;
        self.shared.counts.failed.inc_by(count as u64);
    }

    /// The peer with its current rights; `None` if it is no longer a member.
    pub fn requester(&self) -> Option<Requester> {
        let roster = self.shared.membership.current()?;
        let member = roster.by_key(&self.peer.key())?.clone();
        Some(Requester::new(&self.shared, member))
    }

    /// The length of the next request; `None` if the peer ends the channel.
    async fn head(&mut self) -> io::Result<Option<usize>> {
        let mut head = [0; 4];
        let first = within(self.channel.read(&mut head)).await?;
        if first == 0 {
            return Ok(None);
        }
        within(self.channel.read_exact(&mut head[first..])).await?;
        object::length(head, MAX_REQUEST).map(Some).map_err(invalid)
    }

    /// Reads a request of this length.
    async fn request(&mut self, length: usize) -> io::Result<(Request, Option<Charge>)> {
        let peer_key = peer_key(self.peer.member());
        let beginning = request_memory::begin(&mut self.channel, length);
        let begun = timeout::within(REQUEST_TIMEOUT, "end of a request", beginning).await?;
        let charge = self.wait_for_memory(begun.charge_request(peer_key)).await?;
        let reading = begun.finish(&mut self.channel, charge);
        let Body { bytes, charge } =
            timeout::within(REQUEST_TIMEOUT, "end of a request", reading).await?;
        let request = match length > MAX_DECODED_INLINE {
            true => {
                spawn_blocking(move || object::decode(&bytes)).await.map_err(io::Error::other)?
            }
            false => object::decode(&bytes),
        };
        let request: Request = request.map_err(invalid)?;
        if let (Some(charge), Some(memory)) = (&charge, request.memory(length)) {
            charge.shrink(memory);
        }
        Ok((request, charge))
    }

    /// Reads and discards a request that will not be answered.
    async fn discard(&mut self, length: usize) -> io::Result<()> {
        let (mut buffer, mut left) = ([0; DISCARD_BUFFER], length);
        let discarding = async {
            while left > 0 {
                let some = left.min(DISCARD_BUFFER);
                self.channel.read_exact(&mut buffer[..some]).await?;
                left -= some;
            }
            Ok(())
        };
        timeout::within(DISCARD_TIMEOUT, "end of a request", discarding).await
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The channel's errors.
    pub async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.count_failed(usize::from(matches!(reply, Reply::Failed(_))));
        let mut message = message(reply);
        if message.len() > 4 + MAX_REPLY {
            let why = "the answer is too long: request less at a time".to_owned();
            message = object::encode(&Reply::Failed(Failure::System(why)));
        }
        within(self.channel.write_all(&message)).await?;
        within(self.channel.flush()).await
    }

    /// Sends everything from a source and returns the source.
    ///
    /// # Errors
    /// The channel's errors.
    pub async fn send_source<S: DataSource>(&mut self, source: S) -> io::Result<S> {
        let (source, sent) =
            sender::send_source(&mut self.channel, source, &mut self.buffers).await?;
        self.sent += sent;
        self.shared.counts.sent.inc_by(sent);
        Ok(source)
    }

    fn log_end(&self, from: SocketAddr, began: Instant, ended: io::Result<()>) {
        let event = Event::new("files")
            .with("client", from)
            .with("peer", &self.peer.member().name)
            .with_number("requests", self.requests)
            .with_number("failed", self.failed)
            .with_number("sent_bytes", self.sent)
            .with_number("received_bytes", self.received)
            .with_number("ms", began.elapsed().as_millis());
        self.shared.log.put(match ended {
            Ok(()) => event,
            Err(e) => event.with("why", e),
        });
    }
}

fn invalid(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

/// The party to which memory and turns are charged: the member, whichever of its keys is used.
pub(super) fn peer_key(member: &Member) -> PeerKey {
    PeerKey::Node(member.principal())
}

fn check_length(count: u64) -> io::Result<()> {
    if count > MAX_STORE {
        let why = format!("{count} bytes at once exceed the limit of {MAX_STORE}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(())
}

/// Runs a step, which fails if it takes longer than [`IDLE_TIMEOUT`].
pub(super) async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(IDLE_TIMEOUT, step).await {
        Ok(done) => done,
        Err(_) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no data for {IDLE_TIMEOUT:?}")))
        }
    }
}
