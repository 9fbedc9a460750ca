//! A program that copies: who comes to its port gets a stream to the far end, over whatever it goes.
//!
//! For what is measured between two programs of one kind: over a bond, over plain TCP, and by another
//! program that aggregates links, which cannot be had otherwise.

use super::near::{Near, NearArgs};
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

/// Read and written at once, as daemons do.
const PIECE: usize = 64 << 10;

/// Arguments of `thalweg-bench load bond pipe`.
#[derive(clap::Args)]
pub struct Args {
    /// Where it is come to
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    near: NearArgs,
}

/// Copies until it is ended.
///
/// # Errors
/// When the way does not come about, or nobody can come.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = Arc::new(args.near.near().await?);
    let listener = TcpListener::bind(args.listen).await?;
    writeln!(io::stdout().lock(), "{}", json!({ "event": "ready" }))?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let near = Arc::clone(&near);
        tokio::spawn(async move {
            match copy(&near, tcp).await {
                // Who comes leaves as it likes; what came is compared there.
                Err(why) if !why.is::<io::Error>() => {
                    note!("thalweg-bench: load bond pipe: {why:#}")
                }
                _ => {}
            }
        });
    }
}

async fn copy(near: &Near, mut tcp: TcpStream) -> anyhow::Result<()> {
    tcp.set_nodelay(true)?;
    let mut stream = near.connect().await?;
    copy_bidirectional_with_sizes(&mut tcp, &mut stream, PIECE, PIECE).await?;
    Ok(())
}
