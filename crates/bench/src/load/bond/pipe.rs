//! A copying program: each connection to its port gets a stream to the far end over the given transport.
//!
//! It is one end of a measurement between two programs of one kind: over a bond, over plain TCP, or over another link
//! aggregator, which exists as a program only.

use super::near::{NearTransport, TransportArgs};
use serde_json::json;
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
};
use thalweg_console::note;
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
};

/// The buffer size in each direction, as in the daemon.
const PIECE: usize = 64 << 10;

/// Arguments of `thalweg-bench load bond pipe`.
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    near: TransportArgs,
}

/// Copies until the program is ended.
///
/// # Errors
/// When the transport cannot be set up or the port cannot be used.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = Arc::new(args.near.open().await?);
    let listener = TcpListener::bind(args.listen).await?;
    writeln!(io::stdout().lock(), "{}", json!({ "event": "ready" }))?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let near = Arc::clone(&near);
        tokio::spawn(async move {
            match copy(&near, tcp).await {
                // A client may disconnect at any time, and it compares the bytes itself.
                Err(why) if !why.is::<io::Error>() => {
                    note!("thalweg-bench: load bond pipe: {why:#}")
                }
                _ => {}
            }
        });
    }
}

async fn copy(near: &NearTransport, mut tcp: TcpStream) -> anyhow::Result<()> {
    tcp.set_nodelay(true)?;
    let mut stream = near.connect().await?;
    copy_bidirectional_with_sizes(&mut tcp, &mut stream, PIECE, PIECE).await?;
    Ok(())
}
