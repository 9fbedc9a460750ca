//! DNS queries that leave by one interface (decision 0043).

use crate::sys::bind_to_interface;
use hickory_resolver::net::runtime::{
    RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime, iocompat::AsyncIoTokioAsStd,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::{io, net::SocketAddr, num::NonZeroU32, os::fd::AsFd as _, pin::Pin, time::Duration};
use tokio::{
    net::{TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

/// The timeout for connecting to a server by TCP, if the library gives none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Creates the sockets of a resolver, all bound to one interface.
#[derive(Clone)]
pub(super) struct BoundSockets {
    interface: NonZeroU32,
    runtime: TokioRuntimeProvider,
}

impl BoundSockets {
    pub(super) fn to(interface: NonZeroU32) -> Self {
        Self { interface, runtime: TokioRuntimeProvider::new() }
    }
}

type SocketFuture<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for BoundSockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> Self::Handle {
        self.runtime.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        wait: Option<Duration>,
    ) -> SocketFuture<Self::Tcp> {
        let interface = self.interface;
        Box::pin(async move {
            let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            bind_to_interface(socket.as_fd(), interface)?;
            socket.set_nodelay(true)?;
            local.map(|local| socket.bind(local)).transpose()?;
            let connecting = timeout(wait.unwrap_or(CONNECT_TIMEOUT), socket.connect(server));
            connecting.await?.map(AsyncIoTokioAsStd)
        })
    }

    fn bind_udp(&self, local: SocketAddr, _server: SocketAddr) -> SocketFuture<Self::Udp> {
        let bound = bound_udp(local, self.interface);
        Box::pin(async move { UdpSocket::from_std(bound?.into()) })
    }
}

fn bound_udp(local: SocketAddr, interface: NonZeroU32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    bind_to_interface(socket.as_fd(), interface)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}
