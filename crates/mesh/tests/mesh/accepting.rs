//! Accepts channels at a listener of a test.

use thalweg_net::channel::{Acceptor, Channel};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Serves each channel on a task of its own, until this is aborted.
pub async fn accept<A, S>(listener: TcpListener, acceptor: Acceptor, serve: A)
where
    A: Fn(Channel<TcpStream>) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let mut channels = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        // Channels that are refused or break are what a test provokes.
        channels.spawn(async move {
            if let Ok(channel) = acceptor.accept(tcp).await {
                serve(channel).await;
            }
        });
    }
}
