//! Sessions with riders: the sessions of trains, and sessions for riders alone.

use super::{
    endpoint::{Endpoint, SessionEntry},
    error::SessionError,
    probe_sender::ProbeSender,
    riders::{AttachGuard, Outlet, Riders},
    session::{PATIENCE, ask, secrets, show},
};
use parking_lot::Mutex;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use thalweg_net::{
    channel::Channel,
    probe::{Opener, Sealer},
};
use thalweg_wire::probe::{NO_TRAIN, NodeReply, ProbeRequest};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

/// The interval of keep-alives. Some NATs forget UDP mappings after half a minute (RFC 4787 requires two minutes), and
/// the other end takes a session without requests for abandoned.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// A session for riders alone, at the end that opened it.
pub struct CarrierSession<IO> {
    channel: Channel<IO>,
    sender: ProbeSender,
    _entry: SessionEntry,
    _attached: AttachGuard,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> CarrierSession<IO> {
    /// Opens a session on a channel of the protocol `probe`; `at` is the address of its node, and the endpoint must be
    /// running. No host is calibrated, because the session has no trains.
    ///
    /// # Errors
    /// [`SessionError`], e.g. if the node has no carrier, or datagrams do not pass.
    pub async fn open(
        mut channel: Channel<IO>,
        at: IpAddr,
        endpoint: &Arc<Endpoint>,
        riders: Arc<dyn Riders>,
    ) -> Result<Self, SessionError> {
        let epoch = riders.epoch();
        let told = ask(&mut channel, &ProbeRequest::Carry { epoch }, PATIENCE).await?;
        let NodeReply::Carrying { session, port, epoch } = told else {
            return Err(SessionError::Protocol("unexpected type of answer"));
        };
        let [own, others] = secrets(&channel, session)?;
        let entry = endpoint.enter(session, Opener::new(&others)?, None, at);
        let entry = entry.ok_or(SessionError::Protocol("it used a session number twice"))?;
        let sealer = Arc::new(Mutex::new(Sealer::new(&own, session)?));
        let (socket, to) = (Arc::new(endpoint.sender()?), SocketAddr::new(at, port));
        let sender = ProbeSender { socket, to, sealer, riders: None };
        show(&mut channel, &sender).await?;
        entry.incoming.carry(Arc::clone(&riders), epoch);
        let attached = riders.attach(Outlet::new(sender.clone(), Arc::clone(&entry.incoming)));
        Ok(Self { channel, sender, _entry: entry, _attached: attached })
    }

    /// Keeps the session open until `unused` returns true; it is called every 25 s.
    ///
    /// # Errors
    /// The other end's, or the channel's; the session is over.
    pub async fn keep(mut self, mut unused: impl FnMut() -> bool) -> Result<(), SessionError> {
        let keep_alive = ProbeRequest::Arrivals { train: NO_TRAIN, probes: 1, wait: 0 };
        loop {
            // Notice the end of the channel at once, not only at the next keep-alive.
            tokio::select! {
                () = sleep(KEEP_ALIVE) => {}
                () = ended(&mut self.channel) => return Err(SessionError::Closed),
            }
            if unused() {
                return Ok(());
            }
            self.sender.show()?;
            ask(&mut self.channel, &keep_alive, PATIENCE).await?;
        }
    }
}

/// Returns when the channel ends. The other end sends nothing on it unasked.
async fn ended<IO: AsyncRead + Unpin>(channel: &mut Channel<IO>) {
    use tokio::io::AsyncReadExt as _;
    _ = channel.read(&mut [0]).await;
}

/// Lets riders use this session as well.
pub(super) fn attach(
    sender: &mut ProbeSender,
    entry: &SessionEntry,
    riders: Arc<dyn Riders>,
    epoch: u64,
) -> AttachGuard {
    entry.incoming.carry(Arc::clone(&riders), epoch);
    let outlet = Outlet::new(sender.clone(), Arc::clone(&entry.incoming));
    sender.riders = Some(Arc::clone(&riders));
    riders.attach(outlet)
}
