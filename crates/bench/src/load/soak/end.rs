//! Executes one end's part of a connection's script.

use super::{
    super::pattern::{CHUNK, Pattern},
    script::{ConnectionScript, EndScript},
};
use std::{fmt, io, pin::pin, time::Duration};
use thalweg_net::Stream;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
    sync::oneshot,
    time::sleep,
};

/// A connection that can be broken off.
pub enum SoakConnection {
    /// Plain TCP, broken off by a reset.
    Clear(TcpStream),
    /// TLS, broken off by an end without `close_notify`.
    Sealed(Stream),
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// All bytes arrived, and then the end of the stream.
    Whole,
    /// This end broke the connection off, as the script demands.
    BrokeOff,
}

/// Why a part was not executed completely.
#[derive(Debug)]
pub enum ScriptError {
    /// No connection could be established.
    Dial(String),
    /// The connection broke.
    Io(io::Error),
    /// The stream ended cleanly after too few bytes.
    Truncated,
    /// Received bytes differ from the sent ones.
    WrongBytes(String),
    /// The connection did not end in time.
    Hung,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(why) => write!(f, "could not connect: {why}"),
            Self::Io(e) => write!(f, "broke: {e}"),
            Self::Truncated => f.write_str("ended cleanly, but too early"),
            Self::WrongBytes(what) => f.write_str(what),
            Self::Hung => f.write_str("did not end"),
        }
    }
}

impl From<io::Error> for ScriptError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Executes `part` of `script` on `leg`.
///
/// # Errors
/// [`ScriptError`]; expected if the other end breaks the connection off.
pub async fn play(
    leg: SoakConnection,
    script: &ConnectionScript,
    part: EndScript,
    pattern: &Pattern,
) -> Result<ScriptEnd, ScriptError> {
    match leg {
        SoakConnection::Clear(mut tcp) => {
            tcp.set_nodelay(true)?;
            let done = execute(&mut tcp, script, part, pattern).await;
            if done.as_ref().is_ok_and(|played| *played == ScriptEnd::BrokeOff) {
                socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO))?;
            }
            done
        }
        SoakConnection::Sealed(mut stream) => execute(&mut stream, script, part, pattern).await,
    }
}

/// Sends and receives concurrently. The end that breaks the connection off stops reading.
async fn execute<S>(
    stream: &mut S,
    script: &ConnectionScript,
    part: EndScript,
    pattern: &Pattern,
) -> Result<ScriptEnd, ScriptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = split(stream);
    let (ended, other_ended) = oneshot::channel();
    let sending = async {
        if part.waits {
            // The sender is dropped when the reading fails, which is reported there.
            _ = other_ended.await;
        }
        send(&mut writer, script.from, part, pattern).await
    };
    let receiving = async {
        let done = receive(&mut reader, script.from, part, pattern).await;
        _ = ended.send(());
        done
    };
    let (mut sending, mut receiving) = (pin!(sending), pin!(receiving));
    if part.resets {
        return tokio::select! {
            sent = &mut sending => sent.map(|()| ScriptEnd::BrokeOff),
            // The other end may have closed its direction long ago.
            received = &mut receiving => match received {
                Ok(()) => sending.await.map(|()| ScriptEnd::BrokeOff),
                Err(broken) => Err(broken),
            },
        };
    }
    match tokio::join!(receiving, sending) {
        // The kernel reports a reset only once: the writing half gets it, and the reading half sees an end.
        (Err(ScriptError::Truncated), Err(sent)) => Err(sent),
        (received, sent) => received.and(sent).map(|()| ScriptEnd::Whole),
    }
}

async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    from: u64,
    part: EndScript,
    pattern: &Pattern,
) -> Result<(), ScriptError> {
    let all = if part.resets { part.sends / 2 } else { part.sends };
    let mut sent = 0;
    while sent < all {
        let n = (all - sent).min(part.write as u64) as usize;
        to.write_all(&pattern.at(from + sent)[..n]).await?;
        to.flush().await?;
        sent += n as u64;
        // Only few writes are paced, or a connection would last for minutes.
        if all / part.write as u64 <= 64 {
            sleep(part.pace).await;
        }
    }
    if !part.resets {
        to.shutdown().await?;
    }
    Ok(())
}

async fn receive(
    from: &mut (impl AsyncRead + Unpin),
    position: u64,
    part: EndScript,
    pattern: &Pattern,
) -> Result<(), ScriptError> {
    let mut buffer = vec![0; CHUNK / 4];
    let (mut got, mut stall) = (0, part.stall);
    loop {
        if let Some((_, pause)) = stall.take_if(|(at, _)| got >= *at) {
            sleep(pause).await;
        }
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return if got == part.receives { Ok(()) } else { Err(ScriptError::Truncated) };
        }
        let right = pattern.check(position + got, &buffer[..n]);
        right.map_err(|e| ScriptError::WrongBytes(e.to_string()))?;
        got += n as u64;
        if got > part.receives {
            return Err(ScriptError::WrongBytes(format!("{got} bytes of {}", part.receives)));
        }
    }
}
