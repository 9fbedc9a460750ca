//! A name server that answers each question without records.

use anyhow::Context as _;
use std::net::{SocketAddr, UdpSocket};

/// Arguments of the part.
#[derive(clap::Args)]
pub struct Args {
    /// The address to listen at
    #[arg(long)]
    listen: SocketAddr,
}

/// The bit of the third byte that marks an answer (RFC 1035 §4.1.1).
const ANSWER: u8 = 0x80;

/// Answers until it is killed.
///
/// # Errors
/// When it cannot listen.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(args.listen).with_context(|| format!("{}", args.listen))?;
    thalweg_console::say_line("ready")?;
    let mut message = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut message)?;
        if let Some(flags) = message[..length].get_mut(2) {
            *flags |= ANSWER;
            // A client that has left needs no answer.
            _ = socket.send_to(&message[..length], from);
        }
    }
}
