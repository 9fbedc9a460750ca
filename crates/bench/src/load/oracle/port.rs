//! The oracle's API on loopback channels.

use super::world::SyntheticMesh;
use std::{collections::HashSet, net::SocketAddr, sync::Arc};
use thalweg_net::channel::{Acceptor, Admission, Protocol};
use thalweg_oracle::{Caller, Oracle};
use thalweg_units::NodeId;
use tokio::{net::TcpListener, task::AbortHandle};

/// An open port; closed on drop.
pub struct OraclePort {
    pub at: SocketAddr,
    accepts: AbortHandle,
}

/// Admits members only.
#[derive(Debug)]
struct Members(HashSet<NodeId>);

impl Admission for Members {
    fn admits(&self, key: &NodeId, _: Protocol) -> bool {
        self.0.contains(key)
    }
}

impl OraclePort {
    /// Serves the oracle's API to the members of `world`.
    ///
    /// # Errors
    /// When a system call fails or a key is rejected.
    pub async fn open(oracle: &Oracle, world: &SyntheticMesh) -> anyhow::Result<Self> {
        let members = world.members.iter().filter_map(|member| member.node).collect();
        let admission = Arc::new(Members(members));
        let acceptor = Acceptor::new(&world.node, admission, &[Protocol::Api])?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (at, oracle) = (listener.local_addr()?, oracle.clone());
        let accepts = tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (acceptor, oracle) = (acceptor.clone(), oracle.clone());
                tokio::spawn(async move {
                    _ = stream.set_nodelay(true);
                    if let Ok(channel) = acceptor.accept(stream).await {
                        let caller = Caller::peer(channel.peer(), from);
                        // A broken connection is reported by its client.
                        _ = oracle.serve(channel, caller).await;
                    }
                });
            }
        });
        Ok(Self { at, accepts: accepts.abort_handle() })
    }
}

impl Drop for OraclePort {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}
