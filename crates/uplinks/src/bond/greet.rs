//! The greeting of a link, which turns a channel into a connection of the bond.

use super::link::LinkIo;
use std::{
    io,
    time::{Duration, Instant},
};
use thalweg_base::{message, timeout::within};
use thalweg_net::{Stream, channel::Channel, cut_over};
use thalweg_wire::{
    bond::{Greeting, Hello, MAX_GREETING, Refusal},
    mesh::{GO, GO_ACK},
    object,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Time limit of each step: five round trips of the slowest path.
const STEP: Duration = Duration::from_secs(10);

/// The link, and the bytes that the far end holds of each stream at first; or the far end's refusal.
pub type GreetingResult = Result<(LinkIo, u64), Refusal>;

/// Turns a channel into a link. TLS ends here; the ends of each stream seal what it carries.
///
/// # Errors
/// Errors of the connection, and timeouts.
pub async fn greet(mut channel: Channel<Stream>, hello: &Hello) -> io::Result<GreetingResult> {
    let asked = async {
        message::write(&mut channel, hello).await?;
        message::read::<Greeting>(&mut channel, MAX_GREETING).await
    };
    let began = Instant::now();
    let answer = within(STEP, "greeting", asked).await?;
    let took = began.elapsed();
    let window = match answer {
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
        Some(Greeting::Refused(why)) => return Ok(Err(why.cut())),
        Some(Greeting::Welcome { window }) => window,
    };
    let cutting = async { cut_over(channel).await.map_err(io::Error::other) };
    let (mut stream, early) = within(STEP, "GO", cutting).await?;
    let account = stream.take_account();
    let tcp =
        stream.into_tcp().map_err(|_| io::Error::other("the link's route is not in the clear"))?;
    let link = LinkIo { account, ..LinkIo::clear_after(early, tcp)? };
    Ok(Ok((if hello.is_relayed { link.relayed(took) } else { link }, window)))
}

/// Reads the peer's hello: which bond and link the channel is for.
///
/// # Errors
/// Errors of the connection, and timeouts.
pub async fn read_hello(channel: &mut Channel<TcpStream>) -> io::Result<Hello> {
    let hello = within(STEP, "hello", message::read(channel, MAX_GREETING)).await?;
    hello.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Accepts the channel as a link, as its hello says.
///
/// # Errors
/// Errors of the connection, timeouts, and a peer that answers anything but GO-ACK.
pub async fn welcome(
    mut channel: Channel<TcpStream>,
    hello: &Hello,
    window: u64,
) -> io::Result<LinkIo> {
    let mut greeting = object::encode(&Greeting::Welcome { window });
    greeting.push(GO);
    let agreeing = async {
        channel.write_all(&greeting).await?;
        channel.flush().await?;
        channel.read_u8().await
    };
    let began = Instant::now();
    match within(STEP, "GO-ACK", agreeing).await? {
        GO_ACK => {
            let took = began.elapsed();
            let (tcp, early) = channel.into_clear()?;
            let link = LinkIo::clear_after(early, tcp)?;
            let link = if hello.is_metered { link.metered() } else { link };
            Ok(if hello.is_relayed { link.relayed(took) } else { link })
        }
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a byte other than GO-ACK was received"))
        }
    }
}

/// Refuses the link.
///
/// # Errors
/// Errors of the connection, and timeouts.
pub async fn refuse(mut channel: Channel<TcpStream>, why: Refusal) -> io::Result<()> {
    within(STEP, "room for an answer", async {
        message::write(&mut channel, &Greeting::Refused(why.cut())).await?;
        channel.shutdown().await
    })
    .await
}
