//! The server of the load generators. The first byte of a connection selects what the server does.

use super::{
    pattern::{CHUNK, Pattern},
    process,
};
use anyhow::Context as _;
use serde_json::json;
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The server sends the pattern until the client disconnects.
pub const DOWNLOAD: u8 = b'D';
/// The server receives the pattern and resets the connection at a wrong byte.
pub const UPLOAD: u8 = b'U';
/// The server echoes all bytes.
pub const ECHO: u8 = b'E';
/// The server reads a number of eight bytes, sends as many bytes of the pattern, and closes the connection.
pub const SIZED: u8 = b'S';

/// As [`SIZED`], for one number after the other; the client closes the connection.
pub const EACH: u8 = b'R';
/// The server sends the memory of its process in kB, as a number of eight bytes.
pub const MEMORY: u8 = b'M';

/// The largest block that a client sends before it reads the echo.
pub const ECHO_BLOCK: usize = 16 * 1024;

/// Arguments of `thalweg-bench load server`.
#[derive(clap::Args)]
pub struct Args {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Serves until the program is ended.
///
/// # Errors
/// When it cannot listen or accept.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let listener = listen(args.listen).with_context(|| format!("listening on {}", args.listen))?;
    let ready = json!({ "event": "ready", "listen": listener.local_addr()?.to_string() });
    writeln!(io::stdout().lock(), "{ready}")?;
    accept(listener, None).await
}

/// Serves all connections until the program is ended, with the given congestion control or else the route's.
///
/// # Errors
/// When it cannot accept or the kernel does not have this congestion control.
pub async fn accept(listener: TcpListener, congestion: Option<String>) -> anyhow::Result<()> {
    let pattern = Arc::new(Pattern::new());
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept connections")?;
        stream.set_nodelay(true)?;
        if let Some(name) = &congestion {
            socket2::SockRef::from(&stream).set_tcp_congestion(name.as_bytes())?;
        }
        tokio::spawn(serve(stream, Arc::clone(&pattern)));
    }
}

/// Listens with the longest queue that the kernel allows, because connections arrive in bursts.
///
/// # Errors
/// When a system call fails.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// Serves one connection. I/O errors are reported by the client; wrong bytes are reported here.
async fn serve(mut stream: TcpStream, pattern: Arc<Pattern>) {
    let Ok(work) = stream.read_u8().await else { return };
    let done = match work {
        DOWNLOAD => send(&mut stream, &pattern).await,
        UPLOAD => receive(&mut stream, &pattern).await,
        ECHO => echo(&mut stream).await,
        SIZED => send_sized(&mut stream, &pattern).await,
        EACH => send_each(&mut stream, &pattern).await,
        MEMORY => stream.write_u64(process::own_memory_kb()).await.map_err(Into::into),
        other => Err(anyhow::anyhow!("a connection began with {other:#04x}")),
    };
    let Err(error) = done else { return };
    if !error.is::<io::Error>() {
        thalweg_console::note!("thalweg-bench: load server: {error:#}");
        // The connection is reset, so that the client cannot miss the error.
        let _gone = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
    }
}

async fn send(stream: &mut TcpStream, pattern: &Pattern) -> anyhow::Result<()> {
    let mut position = 0;
    loop {
        position += stream.write(pattern.at(position)).await? as u64;
    }
}

async fn send_sized(stream: &mut TcpStream, pattern: &Pattern) -> anyhow::Result<()> {
    let size = stream.read_u64().await?;
    send_from(stream, pattern, size).await?;
    Ok(stream.shutdown().await?)
}

/// Sends one block after the other until the client disconnects.
async fn send_each(stream: &mut TcpStream, pattern: &Pattern) -> anyhow::Result<()> {
    while let Ok(size) = stream.read_u64().await {
        send_from(stream, pattern, size).await?;
    }
    Ok(())
}

async fn send_from(stream: &mut TcpStream, pattern: &Pattern, size: u64) -> anyhow::Result<()> {
    let mut position = 0;
    while position < size {
        let most = (size - position).min(CHUNK as u64) as usize;
        position += stream.write(&pattern.at(position)[..most]).await? as u64;
    }
    Ok(())
}

async fn receive(stream: &mut TcpStream, pattern: &Pattern) -> anyhow::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut position = 0;
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        pattern.check(position, &buffer[..n])?;
        position += n as u64;
    }
}

async fn echo(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut buffer = vec![0; ECHO_BLOCK];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n]).await?,
        }
    }
}
