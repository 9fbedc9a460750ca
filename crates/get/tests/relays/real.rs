//! A real relay for the tests of downloads.

use std::net::SocketAddr;
use thalweg_base::log::Log;
use thalweg_relay::{EgressPolicy, PortRange, Relay, RelayConfig, parse_cidr};
use tokio::task::JoinSet;

/// Starts a real relay on loopback and returns its address. It stops with `tasks`.
pub async fn real(server: SocketAddr, tasks: &mut JoinSet<()>) -> SocketAddr {
    let mut config = RelayConfig::new("127.0.0.1:0".parse().unwrap());
    let loopback = vec![parse_cidr("127.0.0.0/8").unwrap()];
    config.egress = EgressPolicy::new(loopback, vec![PortRange::one(server.port())]);
    let (log, _) = Log::to_queue();
    let relay = Relay::bind(config, log).await.unwrap();
    let address = relay.local_addr().unwrap();
    tasks.spawn(async move { _ = relay.run(std::future::pending()).await });
    address
}
