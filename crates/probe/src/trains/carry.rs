//! Sessions that carry riders: those of trains, and those that are for riders alone.

use super::{
    endpoint::{Endpoint, Place},
    error::SessionError,
    fly::Way,
    riders::{Attached, Outlet, Riders},
    session::{PATIENCE, ask, secrets, show},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_net::{
    channel::Channel,
    probe::{Opener, Sealer},
};
use thalweg_wire::probe::{Ask, NO_TRAIN, Tell};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

/// Between two signs of life: NATs forget UDP after half a minute (RFC 4787 asks for two), and the other
/// end believes that who asks nothing for long has left.
const SIGN: Duration = Duration::from_secs(25);

/// A session for riders alone, from the end that asked for it.
pub struct Carrying<IO> {
    channel: Channel<IO>,
    way: Way,
    _place: Place,
    _attached: Attached,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Carrying<IO> {
    /// Opens one on a channel of the protocol `probe`, whose node is at this address; the endpoint is running.
    /// Nobody is calibrated: no train goes here.
    ///
    /// # Errors
    /// [`SessionError`]: among others, that the node carries nothing, or that datagrams do not pass.
    pub async fn open(
        mut channel: Channel<IO>,
        at: IpAddr,
        endpoint: &Arc<Endpoint>,
        riders: Arc<dyn Riders>,
    ) -> Result<Self, SessionError> {
        let epoch = riders.epoch();
        let told = ask(&mut channel, &Ask::Carry { epoch }, PATIENCE).await?;
        let Tell::Carrying { session, port, epoch } = told else {
            return Err(SessionError::Protocol("another answer than was asked for"));
        };
        let [own, others] = secrets(&channel, session)?;
        let place = endpoint.enter(session, Opener::new(&others)?, None, at);
        let place = place.ok_or(SessionError::Protocol("a session's number twice"))?;
        let sealer = Arc::new(Mutex::new(Sealer::new(&own, session)?));
        let (socket, to) = (Arc::new(endpoint.sender()?), SocketAddr::new(at, port));
        let way = Way { socket, to, sealer, riders: None };
        show(&mut channel, &way).await?;
        place.incoming.carry(Arc::clone(&riders), epoch);
        let attached = riders.attach(Outlet::new(way.clone(), Arc::clone(&place.incoming)));
        Ok(Self { channel, way, _place: place, _attached: attached })
    }

    /// Keeps it up until `unused` says that it may end, which is asked every 25 s.
    ///
    /// # Errors
    /// The other end's, or the channel's: the session is over.
    pub async fn keep(mut self, mut unused: impl FnMut() -> bool) -> Result<(), SessionError> {
        let sign = Ask::Arrivals { train: NO_TRAIN, probes: 1, wait: 0 };
        loop {
            // The channel's end is heard of at once, and not only at the next sign.
            tokio::select! {
                () = sleep(SIGN) => {}
                () = ended(&mut self.channel) => return Err(SessionError::Protocol("it left")),
            }
            if unused() {
                return Ok(());
            }
            self.way.show()?;
            ask(&mut self.channel, &sign, PATIENCE).await?;
        }
    }
}

/// Ends when the channel does: nobody speaks there without having been asked.
async fn ended<IO: AsyncRead + Unpin>(channel: &mut Channel<IO>) {
    use tokio::io::AsyncReadExt as _;
    _ = channel.read(&mut [0]).await;
}

/// Has riders go in this session as well.
pub(super) fn attach(
    way: &mut Way,
    place: &Place,
    riders: Arc<dyn Riders>,
    epoch: u64,
) -> Attached {
    place.incoming.carry(Arc::clone(&riders), epoch);
    let outlet = Outlet::new(way.clone(), Arc::clone(&place.incoming));
    way.riders = Some(Arc::clone(&riders));
    riders.attach(outlet)
}
