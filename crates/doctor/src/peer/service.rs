//! Answers other members' checks.
//!
//! A member learns this host's name, version and clock, and its own address as seen from here: all of this is known to
//! every member anyway, or is the member's own. It may ask this node to connect to it, at the addresses that the roster
//! lists for it and nowhere else; and for the few findings that concern the pair. It learns nothing of this host's
//! disks, files, programs or other members.

use crate::checks::{clock, tcp};
use crate::host;
use futures_util::future::{BoxFuture, join_all};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::message;
use thalweg_mesh::{Membership, MeshPeer, service::MemberService};
use thalweg_net::{
    Destination, PrivateKey,
    channel::{Channel, ChannelError, Connector, Protocol},
    resolve,
};
use thalweg_units::NodeId;
use thalweg_wire::{
    address_class::{Class, classify},
    doctor::{
        DialOutcome, DialedBack, Finding, Hello, MAX_FINDINGS, MAX_PADDING, MAX_REQUEST, Reply,
        Request, Severity,
    },
    mesh::{Member, Name},
};
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    time::{timeout, timeout_at},
};

/// How long one channel may last: an examination takes some ten seconds.
const SESSION: Duration = Duration::from_secs(60);

/// The most requests on one channel: a hello, the findings, and the padding of a loss test.
const REQUESTS: usize = 64;

/// How long a connection back may take: three SYNs, at 0, 1 and 3 s.
const DIAL: Duration = Duration::from_secs(4);

/// Members that are dialed back at a time; each gets at most [`Member::MAX_ADDRESSES`] connections.
const DIALED_AT_ONCE: usize = 4;

/// The node's end; cheap to clone.
#[derive(Clone, Debug)]
pub struct DoctorService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Name,
    version: String,
    membership: Membership,
    connector: Connector,
    dialing: Semaphore,
}

impl DoctorService {
    /// Creates the service of the member `name`, whose node has this key and program version.
    ///
    /// # Errors
    /// If TLS refuses the key, which is not expected.
    pub fn new(
        name: Name,
        key: &PrivateKey,
        version: &str,
        membership: Membership,
    ) -> io::Result<Self> {
        let connector = Connector::new(key)?;
        let dialing = Semaphore::new(DIALED_AT_ONCE);
        let version = version.to_owned();
        Ok(Self(Arc::new(Inner { name, version, membership, connector, dialing })))
    }
}

impl MemberService for DoctorService {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let session = timeout(SESSION, inner.serve(channel, &peer, from));
            // However it ends, the asker sees the end of the channel.
            _ = peer.unless_revoked(session).await;
        })
    }
}

impl Inner {
    async fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
        from: SocketAddr,
    ) -> io::Result<()> {
        let mut has_dialed = false;
        for _ in 0..REQUESTS {
            let Some(request) = message::read(&mut channel, MAX_REQUEST).await? else { break };
            let reply = match request {
                Request::Hello => Reply::Hello(self.hello(from)),
                Request::Echo { down, .. } => {
                    Reply::Echo(vec![0; usize::try_from(down).unwrap_or(0).min(MAX_PADDING)])
                }
                Request::DialBack if has_dialed => {
                    Reply::Refused("this channel has asked for it before".to_owned())
                }
                Request::DialBack => {
                    has_dialed = true;
                    self.dial_back(peer.member(), is_loopback(from)).await
                }
                Request::Findings => Reply::Findings(self.findings()),
            };
            message::write(&mut channel, &reply).await?;
        }
        Ok(())
    }

    fn hello(&self, from: SocketAddr) -> Hello {
        Hello {
            name: self.name.clone(),
            version: self.version.clone(),
            time: self.membership.now(),
            seen_as: from,
            roster: self.membership.current().map_or(0, |roster| roster.version),
        }
    }

    /// This node's findings that bound what the pair can do: TCP's settings and the clock.
    fn findings(&self) -> Vec<Finding> {
        let kernel = Some(host::kernel_clock());
        let clock = clock::check(&clock::ClockFacts { kernel, others: Vec::new() });
        let all = tcp::check(&host::tcp()).into_iter().chain(clock);
        let told = all.filter(|finding| finding.severity >= Severity::Note);
        told.map(Finding::bounded).take(MAX_FINDINGS).collect()
    }

    /// Connects to the member's addresses in this node's roster.
    async fn dial_back(&self, member: &Member, is_local: bool) -> Reply {
        let Some(node) = member.node else {
            return Reply::Refused("the roster lists no node of this host".to_owned());
        };
        let Ok(_permit) = timeout(DIAL, self.dialing.acquire()).await else {
            return Reply::Refused("too many members ask for it at the moment".to_owned());
        };
        let dialed = member.addresses.iter().map(|address| self.dial(address, node, is_local));
        Reply::DialBack(join_all(dialed).await)
    }

    async fn dial(&self, address: &Destination, node: NodeId, is_local: bool) -> DialedBack {
        let begun = Instant::now();
        let outcome = self.outcome(address, node, is_local).await;
        DialedBack { address: address.clone(), outcome, took: begun.elapsed() }
    }

    async fn outcome(&self, address: &Destination, node: NodeId, is_local: bool) -> DialOutcome {
        let deadline = tokio::time::Instant::now() + DIAL;
        let connected = async {
            let found =
                resolve(address).await.map_err(|why| DialOutcome::Failed(why.to_string()))?;
            let first = found.first().ok_or(DialOutcome::Failed("no address".to_owned()))?;
            check_class(*first, is_local)?;
            TcpStream::connect(first).await.map_err(|why| match why.kind() {
                io::ErrorKind::ConnectionRefused => DialOutcome::Refused,
                io::ErrorKind::TimedOut => DialOutcome::TimedOut,
                _ => DialOutcome::Failed(why.to_string()),
            })
        };
        let tcp = match timeout_at(deadline, connected).await {
            Err(_) => return DialOutcome::TimedOut,
            Ok(Err(outcome)) => return outcome,
            Ok(Ok(tcp)) => tcp,
        };
        let proved = self.connector.connect(tcp, node, Protocol::Doctor);
        match timeout_at(deadline, proved).await {
            Ok(Ok(_)) => DialOutcome::Reached,
            Ok(Err(ChannelError::WrongKey(_))) => DialOutcome::OtherKey,
            Ok(Err(why)) => DialOutcome::Open(why.to_string()),
            Err(_) => DialOutcome::Open("it does not speak TLS".to_owned()),
        }
    }
}

fn is_loopback(at: SocketAddr) -> bool {
    at.ip().to_canonical().is_loopback()
}

/// A member chooses its own addresses, so that it could use them to look for services of this host.
fn check_class(at: SocketAddr, is_local: bool) -> Result<(), DialOutcome> {
    match classify(at.ip()) {
        Some(Class::Loopback) if is_local => Ok(()),
        Some(
            class @ (Class::Loopback | Class::Unspecified | Class::LinkLocal | Class::Metadata),
        ) => Err(DialOutcome::Failed(format!("{at} is not dialed back: it is {class}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_elsewhere_cannot_have_this_hosts_own_ports_tried() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(check_class(at("127.0.0.1:22"), false).is_err());
        assert!(check_class(at("[::]:22"), true).is_err());
        assert!(check_class(at("169.254.169.254:80"), false).is_err());
        assert!(check_class(at("127.0.0.1:7373"), true).is_ok());
        assert!(check_class(at("10.0.0.1:7373"), false).is_ok());
    }
}
