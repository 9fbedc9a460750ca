//! A relay that treats datagrams as networks and strangers do.

use crate::scene::BETWEEN;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{net::UdpSocket, task::JoinSet};

/// Decides what is passed on in place of the datagram with this number (from 0, counting only long ones).
type Fate = dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>> + Send;

/// What is done to datagrams of trains; shorter ones, with which a session begins, pass.
pub struct Mangle {
    fate: Box<Fate>,
    /// The source address of the datagrams that are passed on.
    from: IpAddr,
}

/// Datagrams of trains are longer than this.
const SHORT: usize = 64;

impl Mangle {
    pub fn nothing() -> Self {
        Self::by(|_, datagram| vec![datagram])
    }

    pub fn by(fate: impl FnMut(usize, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self { fate: Box::new(fate), from: Ipv4Addr::LOCALHOST.into() }
    }

    /// Sets the source address, as a NAT or a forger would.
    pub fn from(self, from: IpAddr) -> Self {
        Self { from, ..self }
    }
}

/// The running relay; it ends when it is dropped.
pub struct Mangler {
    passed: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Mangler {
    /// Starts it in front of `far`, at the same port of another loopback address.
    pub async fn before(far: SocketAddr, mangle: Mangle) -> Self {
        let front = Arc::new(UdpSocket::bind((BETWEEN, far.port())).await.unwrap());
        let back = Arc::new(UdpSocket::bind((mangle.from, 0)).await.unwrap());
        back.connect(far).await.unwrap();
        let passed = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let counted = Arc::clone(&passed);
        let (there, to) = (Arc::clone(&front), Arc::clone(&back));
        let near = Arc::new(std::sync::Mutex::new(None));
        let seen = Arc::clone(&near);
        tasks.spawn(async move {
            let (mut fate, mut number, mut buffer) = (mangle.fate, 0, vec![0; 65_536]);
            loop {
                let (length, from) = there.recv_from(&mut buffer).await.unwrap();
                *seen.lock().unwrap() = Some(from);
                let datagram = buffer[..length].to_vec();
                let pass = match length {
                    ..=SHORT => vec![datagram],
                    _ => {
                        number += 1;
                        fate(number - 1, datagram)
                    }
                };
                for one in pass {
                    to.send(&one).await.unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        tasks.spawn(async move {
            let mut buffer = vec![0; 65_536];
            loop {
                let length = back.recv(&mut buffer).await.unwrap();
                let to = near.lock().unwrap().unwrap();
                front.send_to(&buffer[..length], to).await.unwrap();
            }
        });
        Self { passed, _tasks: tasks }
    }

    pub fn ip(&self) -> IpAddr {
        BETWEEN
    }

    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}
