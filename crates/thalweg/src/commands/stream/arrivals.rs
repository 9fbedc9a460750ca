//! Programs that connect to deliver a stream.

use std::{future::pending, io, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_console::note;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};

/// The time for a program's first bytes. An encoder may connect before it has its first picture; others are accepted
/// meanwhile.
const FIRST_BYTES: Duration = Duration::from_secs(10);

/// The most connections that have not delivered yet.
const MAX_WAITING: usize = 16;

/// How long a program may deliver nothing before the next one replaces it.
const IDLE: Duration = Duration::from_secs(5);

/// A connected program and its address.
pub type Program = (TcpStream, SocketAddr);

/// The programs that have connected and sent something, one after the other.
pub struct Arrivals(mpsc::Receiver<io::Result<Program>>);

impl Arrivals {
    /// Accepts programs until the value is dropped.
    pub fn new(listener: TcpListener) -> Self {
        let (to, programs) = mpsc::channel(1);
        tokio::spawn(accept(listener, to));
        Self(programs)
    }

    /// The next program. Cancel-safe.
    ///
    /// # Errors
    /// If no connection can be accepted.
    pub async fn next(&mut self) -> io::Result<Program> {
        match self.0.recv().await {
            Some(program) => program,
            // The task runs as long as this exists.
            None => pending().await,
        }
    }

    /// The next program if the present one delivers nothing for a while from now on. Cancel-safe.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_if_idle(&mut self) -> io::Result<Program> {
        sleep(IDLE).await;
        self.next().await
    }
}

async fn accept(listener: TcpListener, to: mpsc::Sender<io::Result<Program>>) {
    let free = Arc::new(Semaphore::new(MAX_WAITING));
    loop {
        let accepted = async {
            // Never closed; without a permit the connection would only not be counted.
            let permit = Arc::clone(&free).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = to.closed() => return,
        };
        let to = to.clone();
        tokio::spawn(async move {
            let arrived = match accepted {
                Ok(program) => check_first_bytes(program).await.map(Ok),
                Err(why) => Some(Err(why)),
            };
            if let Some(arrived) = arrived {
                // Without a receiver the command ends.
                _ = to.send(arrived).await;
            }
            drop(permit);
        });
    }
}

/// Waits for the first bytes of a program. Returns `None` if it sends none in time, or an HTTP request.
async fn check_first_bytes((from, peer): Program) -> Option<Program> {
    let mut first = [0; 8];
    match timeout(FIRST_BYTES, from.peek(&mut first)).await {
        Err(_) => {
            note!("thalweg: {peer} has sent nothing for {FIRST_BYTES:?}; its connection is closed")
        }
        Ok(Ok(0)) => note!("thalweg: {peer} has closed its connection without sending anything"),
        Ok(Ok(length)) if is_http(&first[..length]) => {
            note!(
                "thalweg: {peer} sent an HTTP request, perhaps from a web page; its connection \
                   is closed"
            );
        }
        // If it cannot be read, that shows later.
        Ok(_) => return Some((from, peer)),
    }
    None
}

/// Whether the first bytes are those of an HTTP request, which any web page can send to this host.
fn is_http(first: &[u8]) -> bool {
    let methods = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC"];
    methods.iter().any(|method| first.starts_with(*method))
}
