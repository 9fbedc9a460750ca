//! Channels that come to a test's own listener.

use thalweg_net::channel::{Acceptor, Channel};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Serves each channel on a task of its own, until it is aborted.
pub async fn accept<A, S>(listener: TcpListener, acceptor: Acceptor, serve: A)
where
    A: Fn(Channel<TcpStream>) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let mut channels = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        // Those that are refused, or break, are the tests' own doing.
        channels.spawn(async move {
            if let Ok(channel) = acceptor.accept(tcp).await {
                serve(channel).await;
            }
        });
    }
}
